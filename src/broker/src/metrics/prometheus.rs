//! The text format of Prometheus: one family after the other, each with its help and type.

mod groups;

use super::{GroupLevels, ShardSnapshot};
use commit_log::{HistogramCounts, LogHistograms};
use std::{collections::BTreeMap, fmt::Write, sync::Arc};

type Value = fn(&ShardSnapshot) -> f64;

struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: Value,
}

const fn counter(name: &'static str, help: &'static str, value: Value) -> Family {
    Family { name, kind: "counter", help, value }
}

const fn gauge(name: &'static str, help: &'static str, value: Value) -> Family {
    Family { name, kind: "gauge", help, value }
}

const FAMILIES: &[Family] = &[
    gauge("corelane_shard_busy_ratio", "Share of the last second in which the shard's thread ran.", |s| {
        s.busy_permille as f64 / 1e3
    }),
    gauge("corelane_connections", "Open connections.", |s| s.connections as f64),
    counter("corelane_connections_accepted_total", "Connections accepted.", |s| s.accepted as f64),
    counter("corelane_connections_handed_over_total", "Connections given to the shard they asked for.", |s| s.handed_over as f64),
    counter("corelane_connections_refused_total", "Connections told an error and closed.", |s| s.refused as f64),
    counter("corelane_connections_gave_way_total", GAVE_WAY_HELP, |s| s.gave_way as f64),
    counter("corelane_requests_total", "Requests taken.", |s| s.requests as f64),
    counter("corelane_requests_overloaded_total", "Requests answered \"overloaded\" for lack of memory.", |s| {
        s.overloaded as f64
    }),
    gauge("corelane_requests_open", "Requests not yet answered.", |s| s.open_requests as f64),
    gauge("corelane_request_bytes", "Bytes of requests not yet answered.", |s| s.in_flight_bytes as f64),
    gauge("corelane_reply_bytes", "Bytes of replies not yet taken by clients.", |s| s.reply_bytes as f64),
    gauge("corelane_buffer_bytes", "Bytes of buffers held.", |s| s.buffer_bytes as f64),
    counter("corelane_sent_bytes_total", "Bytes written to clients.", |s| s.sent_bytes as f64),
    counter("corelane_mesh_messages_total", "Messages sent to other shards.", |s| s.mesh_hops as f64),
    gauge("corelane_mesh_unsent", "Messages to other shards whose queue was full.", |s| s.mesh_unsent as f64),
    gauge("corelane_mesh_waiting", "Questions to other shards not yet answered.", |s| s.mesh_waiting as f64),
    counter("corelane_appended_bytes_total", "Bytes appended.", |s| s.log.appended_bytes as f64),
    counter("corelane_appended_batches_total", "Batches appended.", |s| s.log.appended_batches as f64),
    counter("corelane_appends_refused_total", "Appends refused because a bound was reached.", |s| s.log.appends_refused as f64),
    counter("corelane_duplicate_appends_total", "Appends of idempotent producers that were stored already.", |s| {
        s.log.duplicate_appends as f64
    }),
    counter("corelane_producer_refusals_total", "Appends of idempotent producers out of order, fenced or unknown.", |s| {
        s.log.producer_refusals as f64
    }),
    gauge("corelane_producers", "Idempotent producers remembered, each once for each of its partitions.", |s| {
        s.log.producers as f64
    }),
    gauge("corelane_appends_waiting", "Appends that wait for room in the log's queue.", |s| s.appends_waiting as f64),
    counter("corelane_fetched_bytes_total", "Bytes of batches given to consumers.", |s| s.fetched_bytes as f64),
    counter("corelane_fetched_batches_total", "Batches given to consumers.", |s| s.log.read_batches as f64),
    counter("corelane_flushed_bytes_total", "Bytes moved from the write-ahead log into segments.", |s| {
        s.log.flushed_bytes as f64
    }),
    counter("corelane_checkpoints_total", "Checkpoints written.", |s| s.log.checkpoints as f64),
    counter("corelane_wal_file_waits_total", "Times that no write-ahead file was ready.", |s| s.log.wal_file_waits as f64),
    gauge("corelane_wal_live_bytes", "Write-ahead log that a crash now would replay.", |s| s.log.wal_live_bytes as f64),
    gauge("corelane_append_queue_bytes", "Bytes appended and not yet durable.", |s| s.log.queue_bytes as f64),
    counter("corelane_reads_tail_total", "Reads answered from memory.", |s| s.log.tail_reads as f64),
    counter("corelane_reads_cached_total", "Reads answered from the read cache.", |s| s.log.cached_reads as f64),
    counter("corelane_reads_disk_total", "Reads that went to the disk.", |s| s.log.disk_reads as f64),
    counter("corelane_reads_disk_bytes_total", "Bytes read from the disk.", |s| s.log.disk_read_bytes as f64),
    counter("corelane_indexes_read_total", "Segment indexes read.", |s| s.log.indexes_read as f64),
    counter("corelane_indexes_read_bytes_total", "Bytes of them.", |s| s.log.indexes_read_bytes as f64),
    counter("corelane_indexes_rebuilt_total", "Segment indexes built again from all batches of their segments.", |s| {
        s.log.indexes_rebuilt as f64
    }),
    gauge("corelane_tail_cache_bytes", "Written buffers held.", |s| s.log.tail_cache_bytes as f64),
    gauge("corelane_read_cache_bytes", "Read buffers held.", |s| s.log.read_cache_bytes as f64),
    counter("corelane_corrupt_batches_total", "Stored batches whose checksum did not hold.", |s| s.log.corrupt_batches as f64),
    counter("corelane_scrubbed_bytes_total", "Bytes of sealed segments read again and checked.", |s| s.log.scrubbed_bytes as f64),
    counter("corelane_scrub_passes_total", "Times that all sealed segments were checked.", |s| s.log.scrub_passes as f64),
    counter("corelane_scrub_damaged_ranges_total", "Damaged places found by that.", |s| s.log.scrub_damaged_ranges as f64),
    counter("corelane_compaction_passes_total", "Passes of compaction over a partition.", |s| s.log.compaction_passes as f64),
    counter("corelane_compacted_bytes_total", "Bytes of segments that compaction cleaned.", |s| s.log.compacted_bytes as f64),
    counter("corelane_compaction_written_bytes_total", "Bytes of segments that compaction wrote.", |s| {
        s.log.compaction_written_bytes as f64
    }),
    counter("corelane_compaction_removed_records_total", "Records that compaction removed.", |s| {
        s.log.compaction_removed_records as f64
    }),
    counter("corelane_compaction_damaged_segments_total", "Damaged segments that compaction left as they are.", |s| {
        s.log.compaction_damaged_segments as f64
    }),
    gauge("corelane_compaction_dirty_bytes", "Bytes that compaction may clean.", |s| s.compaction.dirty_bytes as f64),
    gauge("corelane_compaction_behind_seconds", "For how long the oldest of them may be.", |s| {
        s.compaction.behind_ms as f64 / 1e3
    }),
    counter("corelane_expired_segments_total", "Segments that retention took.", |s| s.expired_segments as f64),
    counter("corelane_expired_bytes_total", "Bytes of them.", |s| s.expired_bytes as f64),
    gauge("corelane_groups", "Consumer groups whose coordinators are on the shard.", |s| of_groups(s, |levels| levels.groups)),
    gauge("corelane_groups_members", "Members of them.", |s| of_groups(s, |levels| levels.members)),
    gauge("corelane_groups_lag_records", "Records that they have not committed.", |s| of_groups(s, |levels| levels.lag_records)),
    gauge("corelane_groups_parked_records", "Records of theirs that failed and are tried again, and those behind them.", |s| {
        of_groups(s, |levels| levels.parked_records)
    }),
    counter("corelane_rebalances_total", "Times that the members of a group got new assignments.", |s| s.rebalances as f64),
    counter("corelane_dead_letters_total", "Dead letters appended to their topics.", |s| s.dead_letters as f64),
    gauge("corelane_lossy_partitions", "Partitions that may have lost acknowledged data.", |s| s.lossy_partitions as f64),
    gauge("corelane_partitions", "Partitions of the shard.", |s| s.log.partitions as f64),
    gauge("corelane_topics_without_metrics", LEFT_OUT_HELP, |s| s.topics_left_out as f64),
    gauge("corelane_topics", "Topics known to the shard.", |s| s.topic_count as f64),
    gauge("corelane_log_bytes", "Bytes of the shard's partitions.", |s| s.log_bytes as f64),
    gauge("corelane_disk_free_bytes", "Free bytes of the shard's disk.", |s| s.log.disk_free_bytes as f64),
    gauge("corelane_disk_full", "1 while appends are refused for lack of disk space.", |s| f64::from(u8::from(s.log.disk_full))),
    gauge("corelane_reclaiming_bytes", "Bytes of removed segments whose space is being given back.", |s| {
        s.log.reclaiming_bytes as f64
    }),
    gauge("corelane_segment_files_open", "Segment files open.", |s| s.log.open_files as f64),
];

const GAVE_WAY_HELP: &str = "Connections closed because they were stuck and held memory that others waited for.";
const LEFT_OUT_HELP: &str = "Topics with traffic that the metrics of single topics leave out: a shard names its 1000 busiest.";

const _: () = assert!(super::TOPICS_MAX == 1000 && super::PARTITIONS_MAX == 1000, "the help says so");

struct Distribution {
    name: &'static str,
    help: &'static str,
    /// What is counted, in the unit of the name.
    unit: f64,
    counts: fn(&LogHistograms) -> &HistogramCounts,
}

const BYTES: f64 = 1.0;
const SECONDS: f64 = 1e9;

const DISTRIBUTIONS: [Distribution; 4] = [
    Distribution {
        name: "corelane_commit_group_bytes",
        help: "Sizes of the groups written to the write-ahead log, with padding.",
        unit: BYTES,
        counts: |writes| &writes.group_bytes,
    },
    Distribution {
        name: "corelane_commit_group_seconds",
        help: "Times of the groups from taken to durable.",
        unit: SECONDS,
        counts: |writes| &writes.group_ns,
    },
    Distribution {
        name: "corelane_direct_write_bytes",
        help: "Sizes of the writes of one partition straight into its segment.",
        unit: BYTES,
        counts: |writes| &writes.direct_bytes,
    },
    Distribution {
        name: "corelane_direct_write_seconds",
        help: "Times of them from taken to durable.",
        unit: SECONDS,
        counts: |writes| &writes.direct_ns,
    },
];

fn of_groups(snapshot: &ShardSnapshot, level: fn(&GroupLevels) -> u64) -> f64 {
    snapshot.groups.as_deref().map_or(0, level) as f64
}

/// All metrics of the broker as text. Of its groups `groups_max` are named.
pub(crate) fn render(shards: &[Arc<ShardSnapshot>], is_ready: bool, groups_max: usize) -> String {
    let mut out = String::with_capacity(16 << 10);
    head(&mut out, "corelane_ready", "gauge", "1 while clients are served.");
    line(&mut out, "corelane_ready", "", f64::from(u8::from(is_ready)));
    for family in FAMILIES {
        head(&mut out, family.name, family.kind, family.help);
        for (number, snapshot) in shards.iter().enumerate() {
            line(&mut out, family.name, &format!("{{shard=\"{number}\"}}"), (family.value)(snapshot));
        }
    }
    for distribution in &DISTRIBUTIONS {
        head(&mut out, distribution.name, "histogram", distribution.help);
        for (number, snapshot) in shards.iter().enumerate() {
            if let Some(writes) = &snapshot.writes {
                histogram(&mut out, distribution, number, (distribution.counts)(writes));
            }
        }
    }
    topics(&mut out, shards);
    log_starts(&mut out, shards);
    groups::groups(&mut out, shards, groups_max);
    out
}

/// One histogram of a shard: the counts below each bound, which add up, then sum and count.
fn histogram(out: &mut String, distribution: &Distribution, shard: usize, counts: &HistogramCounts) {
    let Distribution { name, unit, .. } = distribution;
    let mut below = 0;
    for (bound, count) in counts.bounds.iter().zip(counts.counts) {
        below += count;
        writeln!(out, "{name}_bucket{{shard=\"{shard}\",le=\"{}\"}} {below}", *bound as f64 / unit).expect("writing to a string");
    }
    writeln!(out, "{name}_bucket{{shard=\"{shard}\",le=\"+Inf\"}} {}", counts.total()).expect("writing to a string");
    line(out, &format!("{name}_sum"), &format!("{{shard=\"{shard}\"}}"), counts.sum as f64 / unit);
    line(out, &format!("{name}_count"), &format!("{{shard=\"{shard}\"}}"), counts.total() as f64);
}

/// Totals of each topic over the shards.
fn topics(out: &mut String, shards: &[Arc<ShardSnapshot>]) {
    const NAMES: [(&str, &str); 6] = [
        ("corelane_topic_appended_bytes_total", "Bytes appended to the topic."),
        ("corelane_topic_appended_batches_total", "Batches appended to the topic."),
        ("corelane_topic_appended_records_total", "Records appended to the topic."),
        ("corelane_topic_fetched_bytes_total", "Bytes of the topic given to consumers."),
        ("corelane_topic_expired_segments_total", "Segments of the topic that retention took."),
        ("corelane_topic_expired_bytes_total", "Bytes of them."),
    ];
    let mut totals: BTreeMap<&str, [u64; 6]> = BTreeMap::new();
    for topic in shards.iter().flat_map(|snapshot| &snapshot.topics) {
        let sums = totals.entry(&topic.name).or_default();
        let parts = [
            topic.appended_bytes,
            topic.appended_batches,
            topic.appended_records,
            topic.fetched_bytes,
            topic.expired_segments,
            topic.expired_bytes,
        ];
        sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
    }
    for (index, (name, help)) in NAMES.into_iter().enumerate() {
        head(out, name, "counter", help);
        for (topic, sums) in &totals {
            // Topic names hold nothing that a label would have to escape.
            line(out, name, &format!("{{topic=\"{topic}\"}}"), sums[index] as f64);
        }
    }
}

/// Of the partitions that the shards name.
fn log_starts(out: &mut String, shards: &[Arc<ShardSnapshot>]) {
    const NAME: &str = "corelane_partition_log_start";
    head(out, NAME, "gauge", "First offset that the partition keeps: a shard names 1000 partitions of its busiest topics.");
    let mut standings: Vec<_> = shards.iter().flat_map(|snapshot| &snapshot.partitions).collect();
    standings.sort_by_key(|standing| (&standing.topic.name, standing.partition));
    for standing in standings {
        let labels = format!("{{topic=\"{}\",partition=\"{}\"}}", standing.topic.name, standing.partition.0);
        line(out, NAME, &labels, standing.log_start.0 as f64);
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}").expect("writing to a string");
}

fn line(out: &mut String, name: &str, labels: &str, value: f64) {
    writeln!(out, "{name}{labels} {value}").expect("writing to a string");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::TopicTotals;

    #[test]
    fn every_family_is_described_once_and_topics_are_summed() {
        let topic = |appended_bytes| TopicTotals {
            name: "orders".to_owned(),
            appended_bytes,
            appended_batches: 1,
            appended_records: 10,
            fetched_bytes: 5,
            expired_segments: 2,
            expired_bytes: 7,
        };
        let shard = |bytes| Arc::new(ShardSnapshot { connections: 3, topics: vec![topic(bytes)], ..ShardSnapshot::default() });
        let text = render(&[shard(100), shard(23)], true, 10);
        assert!(text.contains("corelane_connections{shard=\"1\"} 3\n"));
        assert!(text.contains("corelane_topic_appended_bytes_total{topic=\"orders\"} 123\n"));
        assert!(text.contains("corelane_topic_expired_segments_total{topic=\"orders\"} 4\n"));
        assert!(text.contains("corelane_ready 1\n"));
        let mut names: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
