//! A run's files: result, histograms, log of seconds, plot.

use std::path::Path;

use super::RunError;
use crate::driver::engine::Second;
use crate::hdr_files::{IntervalLog, write_hgrm};
use crate::plot;
use crate::result::Report;

/// Writes `NAME.json`, `NAME-publish.hgrm`, `NAME-e2e.hgrm` and `NAME.svg`.
pub(super) fn write_files(out: &Path, name: &str, report: &Report<'_>) -> Result<(), RunError> {
    let io = |path: &Path| {
        let what = path.display().to_string();
        move |source| RunError::Io { what, source }
    };
    let path = out.join(format!("{name}.json"));
    std::fs::write(&path, format!("{:#}\n", report.json())).map_err(io(&path))?;
    let mut lines = Vec::new();
    for (kind, latencies) in [("publish", &report.findings.publish.intended), ("e2e", &report.findings.end_to_end)] {
        if latencies.is_empty() {
            continue;
        }
        let path = out.join(format!("{name}-{kind}.hgrm"));
        write_hgrm(&path, latencies).map_err(io(&path))?;
        lines.push(plot::percentile_line(kind, latencies));
    }
    match plot::by_percentile(&out.join(format!("{name}.svg")), name, &report.facts.summary(), &lines) {
        // A very short run has no percentile to draw.
        Ok(()) | Err(plot::PlotError::Empty) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Adds a second to `NAME.hlog`.
pub(super) fn log_second(log: &mut IntervalLog, second: &Second) -> std::io::Result<()> {
    log.write("publish", second.start, second.length, &second.publish.intended)?;
    if !second.end_to_end.is_empty() {
        log.write("e2e", second.start, second.length, &second.end_to_end)?;
    }
    Ok(())
}

/// A name as a file name: OMB's names have slashes and spaces.
pub(super) fn file_name(name: &str) -> String {
    name.chars()
        .map(|character| if character.is_ascii_alphanumeric() || "-._".contains(character) { character } else { '-' })
        .collect()
}
