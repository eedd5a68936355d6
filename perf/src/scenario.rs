//! Scenario files: workloads in which some broker is known to degrade, with what ours must keep.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::driver::producer::Requests;
use crate::driver::spread::Spread;
use crate::driver::template::Body;
use crate::plan::Arrival;
use crate::workload::{BacklogWanted, Failing, Objective, Rate, Retry, Workload, WorkloadError};

/// Every key of a scenario, to name the nearest one to a wrong one.
const KEYS: [&str; 39] = [
    "name",
    "about",
    "topics",
    "partitions-per-topic",
    "producers-per-topic",
    "subscriptions-per-topic",
    "consumers-per-subscription",
    "groups",
    "members-per-group",
    "fail-share",
    "attempts",
    "backoff-ms",
    "message-bytes",
    "random-share",
    "spread",
    "rate",
    "search",
    "saturate",
    "arrival",
    "warmup-s",
    "duration-s",
    "batch-bytes-max",
    "request-bytes-max",
    "requests-in-flight",
    "linger-us",
    "relaxed",
    "retention-bytes",
    "backlog-bytes",
    "drain-ratio",
    "publish-p99-ms",
    "end-to-end-p99-ms",
    "restart-s",
    "curve-percent",
    "kill-after-s",
    "round-robin",
    "keys-round-robin",
    "keys-random",
    "keys-zipf",
    "zipf",
];

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Scenario {
    name: String,
    /// What it is for: printed before it runs.
    about: String,
    topics: Option<u32>,
    partitions_per_topic: Option<u32>,
    producers_per_topic: Option<u32>,
    subscriptions_per_topic: Option<u32>,
    consumers_per_subscription: Option<u32>,
    groups: Option<u32>,
    members_per_group: Option<u32>,
    fail_share: Option<f64>,
    attempts: Option<u32>,
    backoff_ms: Option<u64>,
    message_bytes: Option<usize>,
    random_share: Option<f64>,
    spread: Option<Spread>,
    rate: Option<f64>,
    search: Option<bool>,
    saturate: Option<u64>,
    arrival: Option<Arrival>,
    warmup_s: Option<f64>,
    duration_s: Option<f64>,
    batch_bytes_max: Option<usize>,
    request_bytes_max: Option<usize>,
    requests_in_flight: Option<usize>,
    linger_us: Option<u64>,
    relaxed: Option<bool>,
    retention_bytes: Option<u64>,
    backlog_bytes: Option<u64>,
    drain_ratio: Option<f64>,
    publish_p99_ms: Option<f64>,
    end_to_end_p99_ms: Option<f64>,
    restart_s: Option<f64>,
    #[serde(default)]
    curve_percent: Vec<f64>,
    kill_after_s: Option<f64>,
}

/// Reads a scenario file; returns the workload and what the file says it is for.
///
/// # Errors
/// When the file cannot be read, has a key that is not one (the nearest is named), or a value that cannot be.
pub fn read(path: &Path) -> Result<(Workload, String), WorkloadError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| WorkloadError::Read { path: path.display().to_string(), source })?;
    parse(&text).map_err(|error| match error {
        WorkloadError::Parse { reason, .. } => WorkloadError::Parse { path: path.display().to_string(), reason },
        other => other,
    })
}

fn parse(text: &str) -> Result<(Workload, String), WorkloadError> {
    let wrong = |reason: String| WorkloadError::Parse { path: String::new(), reason };
    let found: Scenario = toml::from_str(text).map_err(|error| wrong(with_nearest(&error.to_string())))?;
    let default = Workload::default();
    let rate = match (found.rate, found.search, found.saturate) {
        (Some(rate), None | Some(false), None) => Rate::PerSecond(rate),
        (None, Some(true), None) => Rate::Search,
        (None, None | Some(false), Some(unanswered)) => Rate::Saturate(unanswered),
        (None, None | Some(false), None) => default.rate,
        _ => return Err(wrong("`rate`, `search` and `saturate` exclude each other".to_owned())),
    };
    let seconds = |field: &str, seconds: Option<f64>, default: Duration| match seconds {
        None => Ok(default),
        Some(value) => Duration::try_from_secs_f64(value).map_err(|error| wrong(format!("`{field}` is {value}: {error}"))),
    };
    let groups = found.groups.unwrap_or(default.groups);
    let workload = Workload {
        name: found.name,
        topics: found.topics.unwrap_or(default.topics),
        partitions_per_topic: found.partitions_per_topic.unwrap_or(default.partitions_per_topic),
        producers_per_topic: found.producers_per_topic.unwrap_or(default.producers_per_topic),
        subscriptions_per_topic: found.subscriptions_per_topic.unwrap_or(if groups > 0 {
            0
        } else {
            default.subscriptions_per_topic
        }),
        consumers_per_subscription: found.consumers_per_subscription.unwrap_or(default.consumers_per_subscription),
        groups,
        members_per_group: found.members_per_group.unwrap_or(default.members_per_group),
        failing: found.fail_share.map_or(default.failing, Failing::Share),
        retry: Retry {
            attempts: found.attempts.unwrap_or(default.retry.attempts),
            backoff: found.backoff_ms.map_or(default.retry.backoff, Duration::from_millis),
        },
        message_bytes: found.message_bytes.unwrap_or(default.message_bytes),
        body: found.random_share.map_or(default.body, Body::Random),
        spread: found.spread.unwrap_or(default.spread),
        rate,
        arrival: found.arrival.unwrap_or(default.arrival),
        warmup: seconds("warmup-s", found.warmup_s, default.warmup)?,
        duration: seconds("duration-s", found.duration_s, default.duration)?,
        requests: Requests {
            batch_bytes_max: found.batch_bytes_max.unwrap_or(default.requests.batch_bytes_max),
            request_bytes_max: found.request_bytes_max.unwrap_or(default.requests.request_bytes_max),
            in_flight_max: found.requests_in_flight.unwrap_or(default.requests.in_flight_max),
            linger_ns: found.linger_us.map_or(default.requests.linger_ns, |us| us * 1000),
            ..default.requests
        },
        relaxed: found.relaxed.unwrap_or(default.relaxed),
        retention_bytes: found.retention_bytes,
        backlog: match (found.backlog_bytes, found.drain_ratio) {
            (Some(bytes), ratio) => Some(BacklogWanted { bytes, drain_ratio: ratio.unwrap_or(1.0) }),
            (None, None) => None,
            (None, Some(_)) => return Err(wrong("`drain-ratio` needs `backlog-bytes`".to_owned())),
        },
        objective: Objective {
            publish_p99_ms: found.publish_p99_ms,
            end_to_end_p99_ms: found.end_to_end_p99_ms,
            restart_s: found.restart_s,
        },
        curve_percent: found.curve_percent,
        kill_after: found.kill_after_s.map(|value| seconds("kill-after-s", Some(value), Duration::ZERO)).transpose()?,
    };
    workload.check()?;
    Ok((workload, found.about))
}

/// Adds the nearest known key to the message about an unknown one.
fn with_nearest(message: &str) -> String {
    let unknown = message.split("unknown field `").nth(1).and_then(|rest| rest.split('`').next());
    let nearest = unknown.and_then(|unknown| {
        let distance = |key: &&&str| strsim::damerau_levenshtein(unknown, key);
        KEYS.iter().min_by_key(distance).filter(|key| distance(key) <= unknown.len() / 2)
    });
    match nearest {
        Some(key) => format!("{}\n(did you mean `{key}`?)", message.trim_end()),
        None => message.trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_of_the_repository_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let (workload, about) = read(&path).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(path.file_stem().unwrap().to_str(), Some(workload.name.as_str()));
            assert!(!about.is_empty());
            names.push(workload.name);
        }
        names.sort();
        let wanted = [
            "drain",
            "drive-limit",
            "keys",
            "long-run",
            "many-clients",
            "many-groups",
            "partitions",
            "poison",
            "restart",
            "retention",
            "skew",
            "trickle",
        ];
        assert_eq!(names, wanted);
    }

    #[test]
    fn a_mistyped_key_is_answered_with_the_nearest_one() {
        let error = parse("name = \"x\"\nabout = \"y\"\nproducers-per-topik = 3\n").unwrap_err().to_string();
        assert!(error.contains("did you mean `producers-per-topic`?"), "{error}");
    }

    #[test]
    fn contradictions_are_refused() {
        for (text, reason) in [
            ("rate = 5\nsearch = true", "exclude"),
            ("drain-ratio = 0.5", "needs"),
            ("rate = -1", "rate is -1"),
            ("fail-share = 0.5", "groups is 0"),
            ("groups = 1\nfail-share = 0.5", "keys is 0"),
        ] {
            let error = parse(&format!("name = \"x\"\nabout = \"y\"\n{text}\n")).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn spreads_have_their_own_forms() {
        for (text, spread) in [
            ("spread = \"round-robin\"", Spread::RoundRobin),
            ("spread = { keys-round-robin = 9 }", Spread::KeysRoundRobin(9)),
            ("spread = { keys-random = 9 }", Spread::KeysRandom(9)),
            ("spread = { keys-zipf = { keys = 9, exponent = 1.1 } }", Spread::KeysZipf { keys: 9, exponent: 1.1 }),
            ("spread = { zipf = 1.1 }", Spread::Zipf(1.1)),
        ] {
            assert_eq!(parse(&format!("name = \"x\"\nabout = \"y\"\n{text}\n")).unwrap().0.spread, spread);
        }
    }
}
