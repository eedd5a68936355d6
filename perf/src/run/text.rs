//! A run's result for a person.

use std::fmt::Write as _;

use crate::latency::Percentiles;
use crate::result::Report;

/// One row a fact, what is wrong last.
pub(super) fn text(report: &Report<'_>) -> String {
    let figures = &report.findings.figures;
    let mut text = String::new();
    let mut row = |name: &str, value: String| writeln!(text, "{name:<12} {value}").expect("writing to a string does not fail");
    let offered = figures.offered_per_second.map_or("closed loop".to_owned(), |rate| format!("{rate:.0}/s"));
    row(
        "rate",
        format!(
            "offered {offered}, acknowledged {:.0}/s = {:.1} MB/s, consumed {:.0}/s, {:.1} messages per request, over {:.1} s",
            figures.acked_per_second,
            figures.acked_mb_per_second,
            figures.consumed_per_second,
            figures.messages_per_request,
            figures.seconds
        ),
    );
    row("publish", Percentiles::of(&report.findings.publish.intended).line());
    row("  actual", Percentiles::of(&report.findings.publish.actual).line());
    row("  delay", Percentiles::of(&report.findings.publish.delay).line());
    if !report.findings.end_to_end.is_empty() {
        row("end to end", Percentiles::of(&report.findings.end_to_end).line());
    }
    let members =
        if figures.members_busy > 0.0 { format!(", group members {:.0} %", figures.members_busy * 100.0) } else { String::new() };
    row("generator", format!("{:.0} % busy{members}", figures.generator_busy * 100.0));
    let refusal = figures.last_refusal.as_ref().map(|text| format!(" (last: {text})")).unwrap_or_default();
    row(
        "errors",
        format!(
            "{} failed, {} sent again, {} fetches refused{refusal}",
            figures.failed, figures.retried, figures.fetches_refused
        ),
    );
    if figures.failed_in_groups > 0 {
        let text =
            format!("{} deliveries failed, {} messages became dead letters", figures.failed_in_groups, figures.dead_letters);
        row("groups", text);
    }
    row(
        "backlog",
        format!(
            "unanswered {} -> {}, unconsumed {} -> {}, {} unsettled",
            figures.unanswered.0, figures.unanswered.1, figures.backlog.0, figures.backlog.1, figures.unsettled
        ),
    );
    if let Some(seconds) = figures.drained_in_seconds {
        row("drained", format!("in {seconds:.1} s"));
    }
    row("messages", figures.wrong.map_or("not checked".to_owned(), |counts| counts.to_string()));
    if let Some(cost) = report.cost {
        row(
            "broker",
            format!(
                "{:.2} CPU-s, {:.3} ms per MiB, wrote {:.1} MB = {:.2} x payload, {:.1} MB resident",
                cost.cpu_seconds,
                cost.cpu_ms_per_mib,
                cost.written_bytes as f64 / 1e6,
                cost.written_per_payload,
                cost.resident_bytes as f64 / 1e6
            ),
        );
    }
    row("machine", format!("{:.1} % busy, {:.1} % stolen", report.cpu.busy_percent, report.cpu.steal_percent));
    for reason in &figures.invalid {
        row("INVALID", reason.clone());
    }
    for reason in &figures.not_sustained {
        row("NOT KEPT UP", reason.clone());
    }
    if figures.wrong.is_some_and(|counts| !counts.is_clean()) {
        row("FAILED", "messages went wrong".to_owned());
    }
    for reason in report.missed {
        row("MISSED", reason.clone());
    }
    text
}
