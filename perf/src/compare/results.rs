//! A result file of `perf bars`.

use std::path::Path;

use serde_json::Value;

use super::CompareError;
use crate::plot::against_limits::Side;

/// The figures of one file. A figure that stands there several times counts with its last line.
#[derive(Debug)]
pub(super) struct Results {
    /// Name of the file.
    name: String,
    /// Version that was measured.
    version: String,
    /// The CPU it was measured on.
    pub(super) machine: String,
    /// In the order of the file.
    pub(super) figures: Vec<Figure>,
}

/// One judged figure.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Figure {
    pub(super) name: String,
    pub(super) value: f64,
    /// Quartiles; both the value itself where it is a count or a size.
    pub(super) low: f64,
    pub(super) high: f64,
    /// Of so many pairs; nothing where it is a count or a size.
    pub(super) pairs: Option<u64>,
    /// Whether more is better.
    pub(super) at_least: bool,
    pub(super) bound: f64,
    pub(super) verdict: String,
}

impl Results {
    /// Reads a file.
    pub(super) fn read(path: &Path) -> Result<Results, CompareError> {
        let wrong = |reason: String| CompareError::Read { path: path.display().to_string(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let unknown = || "unknown".to_owned();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut results = Results { name, version: unknown(), machine: unknown(), figures: Vec::new() };
        for (number, line) in text.lines().enumerate() {
            let value: Value = serde_json::from_str(line).map_err(|error| wrong(format!("line {}: {error}", number + 1)))?;
            if let Some(version) = value["machine"]["version"].as_str() {
                version.clone_into(&mut results.version);
            }
            if let Some(model) = value["machine"]["cpu"]["model"].as_str() {
                model.clone_into(&mut results.machine);
            }
            if let Some(judged) = value.get("judged") {
                let figure = Figure::of(judged).ok_or_else(|| wrong(format!("line {}: not a judged figure", number + 1)))?;
                results.figures.retain(|known| known.name != figure.name);
                results.figures.push(figure);
            }
        }
        Ok(results)
    }

    /// The figure of that name.
    pub(super) fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// File and version.
    pub(super) fn title(&self) -> String {
        format!("{}: {}", self.name, self.version)
    }
}

impl Figure {
    fn of(judged: &Value) -> Option<Figure> {
        let value = judged["value"].as_f64()?;
        let (at_least, bound) = match (judged["limit"]["at-least"].as_f64(), judged["limit"]["at-most"].as_f64()) {
            (Some(bound), None) => (true, bound),
            (None, Some(bound)) => (false, bound),
            _ => return None,
        };
        let quartile = |name: &str| judged["spread"][name].as_f64().unwrap_or(value);
        Some(Figure {
            name: judged["name"].as_str()?.to_owned(),
            value,
            low: quartile("low"),
            high: quartile("high"),
            pairs: judged["spread"]["count"].as_u64(),
            at_least,
            bound,
            verdict: judged["verdict"].as_str()?.to_owned(),
        })
    }

    /// Whether it says itself that its spread is too wide.
    pub(super) fn is_noisy(&self) -> bool {
        matches!(self.verdict.as_str(), "noisy" | "not-measured")
    }

    /// Whether it comes from one pair: then nothing is known of its spread.
    pub(super) fn is_single(&self) -> bool {
        self.pairs.is_some_and(|pairs| pairs < 2)
    }

    /// Divided by its bar; `None` where that is 0.
    pub(super) fn against_limit(&self) -> Option<Side> {
        let scaled = |value: f64| value / self.bound;
        (self.bound > 0.0).then(|| Side { value: scaled(self.value), low: scaled(self.low), high: scaled(self.high) })
    }
}
