//! What a check says: one setting, what it is, what it should be, why, and the remedy.

use std::fmt::Write as _;

use serde::Serialize;

/// How much a setting matters as it stands. The order is the order of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Good,
    /// The host does not say (a virtual machine often hides it): nothing to do.
    Unknown,
    /// Costs latency or throughput.
    Warning,
    /// Endangers data or keeps the broker from starting.
    Wrong,
}

/// One checked setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The setting's stable name, such as `disk.scheduler`.
    pub item: &'static str,
    /// What it was checked on: a device, a CPU list, a directory; empty for the whole host.
    pub subject: String,
    /// The verdict.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What is wanted.
    pub wanted: String,
    /// Why it matters, in one sentence.
    pub why: &'static str,
    /// A shell command that sets it until the next boot, or what to do where no command does it.
    pub fix: Option<String>,
}

impl Finding {
    /// A finding whose verdict is [`Verdict::Good`] exactly when `good` holds, and `otherwise` when not.
    ///
    /// The remedy is kept only where it is needed.
    pub fn judge(self, good: bool, otherwise: Verdict) -> Self {
        assert!(otherwise != Verdict::Good);
        match good {
            true => Finding { verdict: Verdict::Good, fix: None, ..self },
            false => Finding { verdict: otherwise, ..self },
        }
    }

    /// A finding about `item` that is not judged yet.
    pub fn new(item: &'static str, subject: impl Into<String>, why: &'static str) -> Self {
        Finding {
            item,
            subject: subject.into(),
            verdict: Verdict::Unknown,
            found: "not readable here".into(),
            wanted: String::new(),
            why,
            fix: None,
        }
    }

    /// Sets what was found.
    pub fn found(self, found: impl Into<String>) -> Self {
        Finding { found: found.into(), ..self }
    }

    /// Sets what is wanted.
    pub fn wanted(self, wanted: impl Into<String>) -> Self {
        Finding { wanted: wanted.into(), ..self }
    }

    /// Sets the remedy.
    pub fn fix(self, fix: impl Into<String>) -> Self {
        Finding { fix: Some(fix.into()), ..self }
    }
}

/// The most severe verdict of all findings; [`Verdict::Good`] when there is none.
pub fn worst(findings: &[Finding]) -> Verdict {
    findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Good)
}

/// The findings as text for a person: the worst first, the good ones as one line each.
pub fn render(findings: &[Finding]) -> String {
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.verdict));
    let mut text = String::new();
    for finding in sorted {
        render_one(&mut text, finding).expect("writing to a String does not fail");
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (wrong, warning, unknown) = (count(Verdict::Wrong), count(Verdict::Warning), count(Verdict::Unknown));
    let good = count(Verdict::Good);
    text.push_str(&format!("\n{good} good, {warning} to look at, {wrong} wrong, {unknown} not readable here\n"));
    text
}

fn render_one(text: &mut String, finding: &Finding) -> std::fmt::Result {
    let mark = match finding.verdict {
        Verdict::Good => "ok   ",
        Verdict::Unknown => "?    ",
        Verdict::Warning => "warn ",
        Verdict::Wrong => "WRONG",
    };
    let subject = if finding.subject.is_empty() { String::new() } else { format!(" {}", finding.subject) };
    writeln!(text, "{mark} {}{subject}: {}", finding.item, finding.found)?;
    if matches!(finding.verdict, Verdict::Warning | Verdict::Wrong) {
        if !finding.wanted.is_empty() {
            writeln!(text, "        wanted: {}", finding.wanted)?;
        }
        writeln!(text, "        why:    {}", finding.why)?;
        if let Some(fix) = &finding.fix {
            writeln!(text, "        fix:    {fix}")?;
        }
    }
    Ok(())
}
