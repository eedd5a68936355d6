//! Workload files of the OpenMessaging Benchmark, read unchanged.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::driver::spread::Spread;
use crate::driver::template::Body;
use crate::workload::{BacklogWanted, Rate, Workload, WorkloadError};

/// Keys of a key distributor in the benchmark: `KeyDistributor.UNIQUE_COUNT`.
const KEYS: u32 = 10_000;
/// Bytes of a gigabyte as the benchmark counts a backlog.
const GIGABYTE: u64 = 1 << 30;

/// The fields of the benchmark's class `Workload`, those of earlier versions included.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct OmbWorkload {
    #[serde(default)]
    name: Option<String>,
    topics: u32,
    partitions_per_topic: u32,
    #[serde(default)]
    key_distributor: KeyDistributor,
    message_size: usize,
    #[serde(default)]
    use_randomized_payloads: bool,
    #[serde(default)]
    random_bytes_ratio: f64,
    #[serde(default)]
    randomized_payload_pool_size: u32,
    #[serde(default)]
    payload_file: Option<String>,
    subscriptions_per_topic: u32,
    producers_per_topic: u32,
    consumer_per_subscription: u32,
    producer_rate: f64,
    #[serde(default, rename = "consumerBacklogSizeGB")]
    consumer_backlog_size_gb: u64,
    #[serde(default = "one")]
    backlog_drain_ratio: f64,
    test_duration_minutes: f64,
    #[serde(default = "one")]
    warmup_duration_minutes: f64,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum KeyDistributor {
    #[default]
    NoKey,
    KeyRoundRobin,
    RandomNano,
}

fn one() -> f64 {
    1.0
}

/// Reads a workload file of the OpenMessaging Benchmark.
///
/// Its `producerRate` of 0 asks for the highest rate: here a search. A payload file is looked for beside the workload file and in
/// the folder above it, where the benchmark's own tree has it.
///
/// # Errors
/// When the file cannot be read, has a field that the benchmark does not know, or a value that cannot be.
pub fn read(path: &Path) -> Result<Workload, WorkloadError> {
    let read =
        |path: &Path| std::fs::read(path).map_err(|source| WorkloadError::Read { path: path.display().to_string(), source });
    let parse = |reason: String| WorkloadError::Parse { path: path.display().to_string(), reason };
    let found: OmbWorkload = serde_yaml_ng::from_slice(&read(path)?).map_err(|error| parse(error.to_string()))?;
    let body = match found.payload_file.as_deref().filter(|file| !file.is_empty()) {
        _ if found.use_randomized_payloads => Body::Random(found.random_bytes_ratio),
        Some(file) => {
            let folders = path.ancestors().skip(1).take(3);
            let place = folders.map(|folder| folder.join(file)).find(|place| place.exists());
            Body::Bytes(read(&place.unwrap_or_else(|| file.into()))?)
        }
        None => Body::Bytes(vec![0]),
    };
    if found.use_randomized_payloads && found.randomized_payload_pool_size == 0 {
        return Err(parse("randomizedPayloadPoolSize must be at least 1 with useRandomizedPayloads".to_owned()));
    }
    let minutes = |field: &str, minutes: f64| {
        Duration::try_from_secs_f64(minutes * 60.0).map_err(|error| parse(format!("{field} of {minutes}: {error}")))
    };
    let workload = Workload {
        name: found.name.unwrap_or_else(|| path.file_stem().unwrap_or_default().to_string_lossy().into_owned()),
        topics: found.topics,
        partitions_per_topic: found.partitions_per_topic,
        producers_per_topic: found.producers_per_topic,
        subscriptions_per_topic: found.subscriptions_per_topic,
        consumers_per_subscription: found.consumer_per_subscription,
        message_bytes: found.message_size,
        body,
        spread: match found.key_distributor {
            KeyDistributor::NoKey => Spread::RoundRobin,
            KeyDistributor::KeyRoundRobin => Spread::KeysRoundRobin(KEYS),
            KeyDistributor::RandomNano => Spread::KeysRandom(KEYS),
        },
        rate: if found.producer_rate == 0.0 { Rate::Search } else { Rate::PerSecond(found.producer_rate) },
        warmup: minutes("warmupDurationMinutes", found.warmup_duration_minutes)?,
        duration: minutes("testDurationMinutes", found.test_duration_minutes)?,
        backlog: (found.consumer_backlog_size_gb > 0).then_some(BacklogWanted {
            bytes: found.consumer_backlog_size_gb * GIGABYTE,
            drain_ratio: found.backlog_drain_ratio,
        }),
        ..Workload::default()
    };
    workload.check()?;
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `workloads/1-topic-16-partitions-1kb.yaml` of the benchmark, as it stands there.
    const WORKLOAD: &str = "name: 1 topic / 16 partition / 1Kb\n\ntopics: 1\npartitionsPerTopic: 16\nkeyDistributor: \"NO_KEY\"\nmessageSize: 1024\n\
        payloadFile: \"payload/payload-1Kb.data\"\nsubscriptionsPerTopic: 1\nconsumerPerSubscription: 1\nproducersPerTopic: 1\nproducerRate: 50000\n\
        consumerBacklogSizeGB: 0\ntestDurationMinutes: 15\n";

    fn read_text(text: &str) -> Result<Workload, WorkloadError> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("payload")).unwrap();
        std::fs::create_dir_all(folder.path().join("workloads")).unwrap();
        std::fs::write(folder.path().join("payload/payload-1Kb.data"), [7; 1024]).unwrap();
        let path = folder.path().join("workloads/w.yaml");
        std::fs::write(&path, text).unwrap();
        read(&path)
    }

    #[test]
    fn a_workload_of_the_benchmark_is_read_unchanged() {
        let workload = read_text(WORKLOAD).unwrap();
        assert_eq!(workload.name, "1 topic / 16 partition / 1Kb");
        assert_eq!((workload.partitions(), workload.message_bytes), (16, 1024));
        assert_eq!(workload.rate, Rate::PerSecond(50_000.0));
        assert_eq!((workload.warmup, workload.duration), (Duration::from_secs(60), Duration::from_secs(900)));
        assert!(matches!(workload.body, Body::Bytes(bytes) if bytes == [7; 1024]));
    }

    #[test]
    fn keys_random_payloads_backlog_and_the_search_are_taken_over() {
        let text = WORKLOAD
            .replace("NO_KEY", "KEY_ROUND_ROBIN")
            .replace("producerRate: 50000", "producerRate: 0")
            .replace("consumerBacklogSizeGB: 0", "consumerBacklogSizeGB: 2\nbacklogDrainRatio: 0.99")
            .replace(
                "payloadFile: \"payload/payload-1Kb.data\"",
                "useRandomizedPayloads: true\nrandomBytesRatio: 0.5\nrandomizedPayloadPoolSize: 100",
            );
        let workload = read_text(&text).unwrap();
        assert_eq!(workload.spread, Spread::KeysRoundRobin(10_000));
        assert_eq!(workload.rate, Rate::Search);
        assert_eq!(workload.backlog, Some(BacklogWanted { bytes: 2 << 30, drain_ratio: 0.99 }));
        assert!(matches!(workload.body, Body::Random(share) if share == 0.5));
    }

    #[test]
    fn an_unknown_field_is_refused_by_name_and_line() {
        let error = read_text(&WORKLOAD.replace("messageSize", "mesageSize")).unwrap_err().to_string();
        assert!(error.contains("mesageSize") && error.contains("line"), "{error}");
    }
}
