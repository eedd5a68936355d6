//! Consumer groups by name, of all shards together, and their partitions.

use super::{head, line};
use crate::metrics::{GroupLevel, GroupLevels, GroupPartitionLevel, ShardSnapshot};
use std::sync::Arc;

struct Family<T> {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// `None`: there is no such value of this one.
    value: fn(&T) -> Option<u64>,
}

const GROUPS: [Family<GroupLevel>; 8] = [
    Family {
        name: "corelane_group_lag_records",
        kind: "gauge",
        help: "Records that the group has not committed, of the partitions that it has a commit in.",
        value: |level| Some(level.lag_records),
    },
    Family {
        name: "corelane_group_members",
        kind: "gauge",
        help: "Members of the group.",
        value: |level| Some(level.members as u64),
    },
    Family {
        name: "corelane_group_rebalances_total",
        kind: "counter",
        help: "Times that the members got new assignments.",
        value: |level| Some(level.rebalances),
    },
    Family {
        name: "corelane_group_parked_records",
        kind: "gauge",
        help: "Records that failed and are tried again, with those held back behind them.",
        value: |level| Some(level.retries.parked_records),
    },
    Family {
        name: "corelane_group_dead_lettered_records_total",
        kind: "counter",
        help: "Records that became dead letters, those that are not written yet among them.",
        value: |level| Some(level.retries.dead_lettered),
    },
    Family {
        name: "corelane_group_dead_letters_pending",
        kind: "gauge",
        help: "Dead letters that are not written yet: for long only when their topic cannot be made or written.",
        value: |level| Some(level.retries.dead_letters_pending),
    },
    Family {
        name: "corelane_group_skipped_records_total",
        kind: "counter",
        help: "Failed records that were skipped.",
        value: |level| Some(level.retries.skipped),
    },
    Family {
        name: "corelane_group_stopped_partitions",
        kind: "gauge",
        help: "Partitions that a failed record stopped.",
        value: |level| Some(level.retries.stopped_partitions),
    },
];

const PARTITIONS: [Family<GroupPartitionLevel>; 2] = [
    Family {
        name: "corelane_group_partition_lag_records",
        kind: "gauge",
        help: "Records of the partition that the group has not committed.",
        value: |level| level.lag_records,
    },
    Family {
        name: "corelane_group_partition_parked_records",
        kind: "gauge",
        help: "Records of the partition that failed and are tried again, with those held back behind them.",
        value: |level| Some(level.parked_records),
    },
];

/// The groups named by the shards: up to `groups_max`, those furthest behind.
pub(super) fn groups(out: &mut String, shards: &[Arc<ShardSnapshot>], groups_max: usize) {
    let mut levels = GroupLevels::new(groups_max);
    shards.iter().filter_map(|snapshot| snapshot.groups.as_deref()).for_each(|of_shard| levels.add_named(of_shard));
    // Names of groups and topics hold nothing that a label would have to escape.
    let mut groups: Vec<_> = levels.named.iter().map(|level| (format!("{{group=\"{}\"}}", level.group), level)).collect();
    groups.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    families(out, &GROUPS, &groups);
    let mut partitions: Vec<&GroupPartitionLevel> = levels.partitions.iter().collect();
    partitions.sort_unstable_by_key(|level| (level.group.as_str(), &*level.topic, level.partition));
    let labels = |level: &GroupPartitionLevel| {
        format!("{{group=\"{}\",topic=\"{}\",partition=\"{}\"}}", level.group, level.topic, level.partition.0)
    };
    let partitions: Vec<_> = partitions.into_iter().map(|level| (labels(level), level)).collect();
    families(out, &PARTITIONS, &partitions);
    for (name, help, left_out) in [
        ("corelane_groups_without_metrics", "Groups left out: `groups.metrics_max` of them are named.", levels.named.left_out()),
        (
            "corelane_group_partitions_without_metrics",
            "Partitions of groups left out: ten times `groups.metrics_max` of them are named.",
            levels.partitions.left_out(),
        ),
    ] {
        head(out, name, "gauge", help);
        line(out, name, "", left_out as f64);
    }
}

fn families<T>(out: &mut String, families: &[Family<T>], levels: &[(String, &T)]) {
    for family in families {
        head(out, family.name, family.kind, family.help);
        for (labels, level) in levels {
            if let Some(value) = (family.value)(level) {
                line(out, family.name, labels, value as f64);
            }
        }
    }
}
