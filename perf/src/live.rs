//! One line a second, on a terminal overwritten, elsewhere one below the other.

use std::io::{IsTerminal, Write};

use crate::driver::engine::Second;
use crate::latency::percentile_ms;

/// The live display of a run.
#[derive(Debug)]
pub struct Live {
    terminal: bool,
    message_bytes: usize,
    quiet: bool,
}

impl Live {
    /// A display for messages of this length; `quiet` shows nothing.
    pub fn new(message_bytes: usize, quiet: bool) -> Live {
        Live { terminal: std::io::stderr().is_terminal(), message_bytes, quiet }
    }

    /// Shows a second.
    pub fn show(&self, second: &Second) {
        if self.quiet {
            return;
        }
        let line = line(second, self.message_bytes);
        let mut out = std::io::stderr().lock();
        // Nobody is harmed when the display cannot be written.
        let _shown = if self.terminal { write!(out, "\r\x1b[K{line}") } else { writeln!(out, "{line}") };
        let _flushed = out.flush();
    }

    /// Ends the display.
    pub fn finish(&self) {
        if self.terminal && !self.quiet {
            eprintln!();
        }
    }
}

fn line(second: &Second, message_bytes: usize) -> String {
    let seconds = second.length.as_secs_f64().max(1e-9);
    let rate = second.counts.acked as f64 / seconds;
    let stated = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
    format!(
        "{:>5.0} s {} offered {:>9.0}/s acked {:>9.0}/s {:>7.1} MB/s consumed {:>9.0}/s errors {} unanswered {} backlog {} publish p50 {} p99 {} e2e p99 {} ms",
        (second.start + second.length).as_secs_f64(),
        if second.measured { " " } else { "w" },
        second.counts.sent as f64 / seconds,
        rate,
        rate * message_bytes as f64 / 1e6,
        second.consumed as f64 / seconds,
        second.counts.failed,
        second.unanswered,
        second.backlog,
        stated(percentile_ms(&second.publish.intended, 0.5)),
        stated(percentile_ms(&second.publish.intended, 0.99)),
        stated(percentile_ms(&second.end_to_end, 0.99)),
    )
}
