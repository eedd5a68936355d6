//! `perf compare`: two files of bars beside each other, figure by figure.
//!
//! ```text
//!   A.jsonl ─┐                ┌─► name, A, B, B / A, verdict
//!            ├─► by bar name ─┤
//!   B.jsonl ─┘                └─► plot: each value divided by its bar, quartiles as whiskers
//! ```

mod results;

use std::path::PathBuf;

use thiserror::Error;

use crate::plot::PlotError;
use crate::plot::against_limits::{self, Row};
use results::{Figure, Results};

/// Medians that differ by less than this share are the same, however small their spread.
const SAME_SHARE: f64 = 0.03;

/// Arguments of `perf compare`.
#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// Result file of `perf bars`, the one to compare with
    #[arg(value_name = "A.jsonl")]
    before: PathBuf,
    /// Result file of `perf bars`
    #[arg(value_name = "B.jsonl")]
    after: PathBuf,
    /// The plot
    #[arg(long, value_name = "FILE.svg", default_value = "compare.svg")]
    out: PathBuf,
}

/// Two files cannot be compared.
#[derive(Debug, Error)]
pub enum CompareError {
    /// A file is not a result file of `perf bars`.
    #[error("{path}: {reason}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// They have no figure in common.
    #[error("the files have no bar in common")]
    Nothing,
    /// The plot.
    #[error(transparent)]
    Plot(#[from] PlotError),
}

/// How B stands to A.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Better,
    Same,
    Worse,
    /// The quartiles overlap although the medians differ, or one of the figures is noisy itself, or comes from a single pair.
    Unclear,
}

/// Prints the table, draws the plot. False when a bar became worse.
pub(crate) fn run(args: &CompareArgs) -> Result<bool, CompareError> {
    let (before, after) = (Results::read(&args.before)?, Results::read(&args.after)?);
    let pairs: Vec<(&Figure, &Figure)> =
        before.figures.iter().filter_map(|figure| Some((figure, after.figure(&figure.name)?))).collect();
    if pairs.is_empty() {
        return Err(CompareError::Nothing);
    }
    println!("A  {}\nB  {}\n", before.title(), after.title());
    println!("{:<16} {:>10} {:>10} {:>7}  {:<8} {:<9} A and B against the bar", "bar", "A", "B", "B / A", "verdict", "bar");
    for (a, b) in &pairs {
        println!("{}", line(a, b));
    }
    for (name, one, other) in [("A", &before, &after), ("B", &after, &before)] {
        let alone: Vec<&str> =
            one.figures.iter().filter(|figure| other.figure(&figure.name).is_none()).map(|figure| figure.name.as_str()).collect();
        if !alone.is_empty() {
            println!("only in {name}: {}", alone.join(", "));
        }
        if let Some(warning) = single_pairs(name, one) {
            println!("{warning}");
        }
    }
    let row = |(a, b): &(&Figure, &Figure)| Some(Row { name: a.name.clone(), sides: [a.against_limit()?, b.against_limit()?] });
    let rows: Vec<Row> = pairs.iter().filter_map(row).collect();
    let names = [&before, &after].map(Results::title);
    match against_limits::draw(&args.out, "bars of two runs", &before.machine, &names, &rows) {
        Ok(()) => println!("\n{}", args.out.display()),
        // Counts whose bar is 0 have no ratio to draw.
        Err(PlotError::Empty) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(pairs.iter().all(|(a, b)| verdict(a, b) != Verdict::Worse))
}

/// What is to be said of figures that come from one pair.
fn single_pairs(name: &str, results: &Results) -> Option<String> {
    let single: Vec<&str> =
        results.figures.iter().filter(|figure| figure.is_single()).map(|figure| figure.name.as_str()).collect();
    (!single.is_empty()).then(|| {
        let figures = single.join(", ");
        format!("warning: one pair each in {name} (n 1): {figures}. Their spread is not known: a difference may be noise")
    })
}

fn line(a: &Figure, b: &Figure) -> String {
    let ratio = if a.value == 0.0 { "-".to_owned() } else { format!("{:.2}", b.value / a.value) };
    let verdict = match verdict(a, b) {
        Verdict::Better => "better",
        Verdict::Same => "same",
        Verdict::Worse => "WORSE",
        Verdict::Unclear => "unclear",
    };
    let bar = format!("{} {}", if b.at_least { ">=" } else { "<=" }, b.bound);
    format!("{:<16} {:>10.3} {:>10.3} {ratio:>7}  {verdict:<8} {bar:<9} {}, {}", a.name, a.value, b.value, a.verdict, b.verdict)
}

fn verdict(a: &Figure, b: &Figure) -> Verdict {
    let scale = a.value.abs().max(b.value.abs());
    if (b.value - a.value).abs() <= scale * SAME_SHARE {
        return Verdict::Same;
    }
    let overlap = a.low <= b.high && b.low <= a.high;
    if overlap || [a, b].into_iter().any(|figure| figure.is_noisy() || figure.is_single()) {
        return Verdict::Unclear;
    }
    if (b.value > a.value) == b.at_least { Verdict::Better } else { Verdict::Worse }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(value: f64, (low, high): (f64, f64), at_least: bool, verdict: &str) -> Figure {
        let name = "produce".to_owned();
        Figure { name, value, low, high, pairs: Some(5), at_least, bound: 0.7, verdict: verdict.to_owned() }
    }

    #[test]
    fn a_difference_counts_only_beyond_the_spread() {
        let check = |a: (f64, f64, f64), b: (f64, f64, f64), at_least: bool, wanted: Verdict| {
            let of = |(value, low, high)| figure(value, (low, high), at_least, "pass");
            assert_eq!(verdict(&of(a), &of(b)), wanted, "{a:?} {b:?}");
        };
        check((0.80, 0.79, 0.81), (0.81, 0.808, 0.812), true, Verdict::Same);
        check((0.80, 0.79, 0.81), (0.90, 0.89, 0.91), true, Verdict::Better);
        check((0.80, 0.79, 0.81), (0.90, 0.89, 0.91), false, Verdict::Worse);
        check((0.80, 0.70, 0.90), (0.90, 0.85, 0.95), true, Verdict::Unclear);
        check((0.0, 0.0, 0.0), (0.0, 0.0, 0.0), false, Verdict::Same);
        check((0.0, 0.0, 0.0), (3.0, 3.0, 3.0), false, Verdict::Worse);
        let noisy = figure(0.5, (0.5, 0.5), true, "noisy");
        assert_eq!(verdict(&figure(0.9, (0.9, 0.9), true, "pass"), &noisy), Verdict::Unclear);
        let single = Figure { pairs: Some(1), ..figure(0.5, (0.5, 0.5), true, "fail") };
        assert_eq!(verdict(&figure(0.9, (0.9, 0.9), true, "pass"), &single), Verdict::Unclear);
        let count = |value| Figure { pairs: None, ..figure(value, (value, value), false, "pass") };
        assert_eq!(verdict(&count(1.0), &count(2.0)), Verdict::Worse);
    }

    #[test]
    fn a_line_names_both_values_their_ratio_and_the_verdict() {
        let text = line(&figure(0.5, (0.49, 0.51), true, "fail"), &figure(1.0, (0.99, 1.01), true, "pass"));
        assert_eq!(text, "produce               0.500      1.000    2.00  better   >= 0.7    fail, pass");
        let text = line(&figure(0.0, (0.0, 0.0), false, "pass"), &figure(2.0, (2.0, 2.0), false, "fail"));
        assert!(text.contains("   -  WORSE"), "{text}");
    }

    #[test]
    fn two_files_of_bars_make_a_table_and_a_plot() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, produce: f64, readers: f64| {
            let line = |name: &str, value: f64, limit: &str| {
                format!(
                    r#"{{"bar":"x","judged":{{"name":"{name}","what":"w","limit":{limit},"value":{value},"spread":null,"detail":"","verdict":"pass"}}}}"#
                )
            };
            let text = [
                r#"{"machine":{"version":"corelane 0.1.0 (abc)","cpu":{"model":"a CPU"}},"unixSeconds":1}"#.to_owned(),
                line("produce", produce, r#"{"at-least":0.7}"#),
                line("crash", 0.0, r#"{"at-most":0.0}"#),
                line("readers", readers, r#"{"at-least":0.7}"#),
                r#"{"bar":"restart","error":"it did not start"}"#.to_owned(),
            ]
            .join("\n");
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let args =
            |after: PathBuf| CompareArgs { before: file("a.jsonl", 0.5, 0.8), after, out: folder.path().join("compare.svg") };
        assert!(run(&args(file("b.jsonl", 0.9, 0.8))).unwrap());
        let plot = std::fs::read_to_string(folder.path().join("compare.svg")).unwrap();
        assert!(
            plot.contains("produce") && plot.contains("readers") && plot.contains("a CPU") && plot.contains("a.jsonl"),
            "{plot}"
        );
        assert!(!plot.contains("crash"), "a bar of 0 has no ratio");
        assert!(!run(&args(file("c.jsonl", 0.9, 0.4))).unwrap(), "readers became worse");
        let warned = |name: &str| single_pairs("A", &Results::read(&folder.path().join(name)).unwrap());
        assert_eq!(warned("a.jsonl"), None);
        let text = std::fs::read_to_string(folder.path().join("a.jsonl")).unwrap();
        let one_pair = r#""spread":{"median":0.5,"low":0.5,"high":0.5,"iqr_share":0.0,"count":1}"#;
        std::fs::write(folder.path().join("f.jsonl"), text.replace(r#""spread":null"#, one_pair)).unwrap();
        assert!(warned("f.jsonl").unwrap().contains("one pair each in A (n 1): produce, crash, readers"));
        assert!(run(&args(folder.path().join("f.jsonl"))).unwrap(), "nothing is said to be worse");
        std::fs::write(folder.path().join("d.jsonl"), "not JSON").unwrap();
        assert!(matches!(run(&args(folder.path().join("d.jsonl"))), Err(CompareError::Read { .. })));
        std::fs::write(folder.path().join("e.jsonl"), "{}").unwrap();
        assert!(matches!(run(&args(folder.path().join("e.jsonl"))), Err(CompareError::Nothing)));
    }
}
