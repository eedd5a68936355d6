//! What operators watch of groups: lag, what is parked, what was given up, and who is there.

use crate::{
    groups::{Member, commit, orders},
    http::metrics_when,
    support::{Raw, Site, batch, stop},
};
use std::collections::{BTreeSet, HashMap};
use wire::{
    AlterGroupRequest, Change, CommittedOffset, DeferredRecord, DeleteRecordsPartition, DeleteRecordsRequest,
    DescribeGroupRequest, ErrorCode, FailedRecord, GroupHeartbeatRequest, MemberEpoch, Offset, PartitionIndex,
    RetryPolicyChanges, SettlePartition, SettleRequest, TopicConfig, TopicId,
};

const SHARDS: u16 = 3;
const PARTITIONS: u32 = 6;

fn of_group(name: &str, group: &str) -> String {
    format!("corelane_group_{name}{{group=\"{group}\"}}")
}

fn of_partition(name: &str, group: &str, partition: u32) -> String {
    format!("corelane_group_partition_{name}{{group=\"{group}\",topic=\"orders\",partition=\"{partition}\"}}")
}

fn sum(samples: &HashMap<String, f64>, name: &str) -> f64 {
    (0..SHARDS).filter_map(|shard| samples.get(&format!("corelane_{name}{{shard=\"{shard}\"}}"))).sum()
}

/// A failed record of a group waits an hour before it is tried again, up to so many times.
fn set_attempts(client: &mut Raw, group: &str, attempts: u32) {
    let hour_ms = Some(3_600_000);
    let changes = RetryPolicyChanges {
        attempts_max: Some(attempts),
        backoff_first_ms: hour_ms,
        backoff_max_ms: hour_ms,
        ..RetryPolicyChanges::default()
    };
    let reply = client.ask(&AlterGroupRequest {
        group: group.to_owned(),
        topic: None,
        retry: Change::Set(changes),
        offsets_retention: Change::Keep,
        resume: false,
    });
    assert_eq!(reply.error, ErrorCode::None, "{:?}", reply.message);
}

/// The member's record at `offset` failed, those of its key behind it wait, and the position goes on behind all.
fn fail(client: &mut Raw, member: &Member, group: &str, topic: TopicId, partition: u32, offset: u64, behind: u64) {
    let key = b"key".to_vec();
    let deferred = (1..=behind).map(|number| DeferredRecord { offset: Offset(offset + number), key: key.clone() });
    let part = SettlePartition {
        topic,
        partition: PartitionIndex(partition),
        deferred: deferred.collect(),
        done: Vec::new(),
        failed: vec![FailedRecord { offset: Offset(offset), key: Some(key.clone()), attempt: 1, reason: "no".to_owned() }],
        commit: Some(CommittedOffset { offset: Offset(offset + behind + 1), leader_epoch: None, metadata: None }),
    };
    let reply = client.ask(&SettleRequest {
        group: group.to_owned(),
        member_id: member.id.clone(),
        member_epoch: member.epoch,
        partitions: vec![part],
    });
    assert_eq!((reply.error, reply.partitions[0].error), (ErrorCode::None, ErrorCode::None), "{reply:?}");
}

#[test]
fn lag_and_parked_records_are_exact_wherever_the_partitions_live() {
    let site = Site::new();
    let broker = site.start(SHARDS);
    let mut client = Raw::connect(broker.addr());
    let topic = orders(&mut client, PARTITIONS);
    let shards: BTreeSet<u16> = client.topic("orders").partitions.iter().map(|partition| partition.shard).collect();
    assert!(shards.len() > 1, "a coordinator has partitions on other shards: {shards:?}");
    for partition in 0..PARTITIONS {
        client.produce(topic, partition, batch(&vec!["value"; 10 + partition as usize]));
    }
    // Partition 0 keeps its records from 5 on.
    let before = DeleteRecordsPartition { topic, partition: PartitionIndex(0), before: Offset(5) };
    assert_eq!(client.ask(&DeleteRecordsRequest { partitions: vec![before] }).partitions[0].error, ErrorCode::None);
    let names: Vec<String> = (0..20).map(|number| format!("g{number:02}")).collect();
    let mut coordinators = BTreeSet::new();
    for (name, number) in names.iter().zip(0..) {
        for partition in 0..PARTITIONS {
            assert_eq!(commit(&mut client, name, None, topic, partition, number % 10), ErrorCode::None);
        }
        coordinators.insert(client.ask(&DescribeGroupRequest { group: name.clone(), after: None }).shard);
    }
    assert!(coordinators.len() > 1, "{coordinators:?}");

    set_attempts(&mut client, "billing", 3);
    let mut billing = Member::new("billing", "m-1");
    billing.settle(&mut client, topic);
    assert_eq!(billing.commit(&mut client, topic, 1, 2), ErrorCode::None);
    fail(&mut client, &billing, "billing", topic, 1, 2, 3);
    // The first failure is the last.
    set_attempts(&mut client, "shipping", 1);
    let mut shipping = Member::new("shipping", "m-1");
    shipping.settle(&mut client, topic);
    assert_eq!(shipping.commit(&mut client, topic, 4, 7), ErrorCode::None);
    fail(&mut client, &shipping, "shipping", topic, 4, 7, 0);

    let lag = |number: u64, partition: u32| {
        let log_start = if partition == 0 { 5 } else { 0 };
        10 + u64::from(partition) - (number % 10).max(log_start)
    };
    let lag_of_group = |number| (0..PARTITIONS).map(|partition| lag(number, partition)).sum::<u64>();
    // Of partition 1 the group has passed 6 of 11 records, of partition 4 the other has passed 8 of 14.
    let lag_of_all = 5 + 6 + (0..20).map(lag_of_group).sum::<u64>();
    // What shards show is of different moments, until all of it is of now.
    let samples = metrics_when(broker.http_addr().unwrap(), |samples| {
        sum(samples, "groups_lag_records") == lag_of_all as f64
            && sum(samples, "groups_parked_records") == 4.0
            && samples.get(&of_group("dead_lettered_records_total", "shipping")) == Some(&1.0)
            && sum(samples, "dead_letters_total") == 1.0
    });
    for (name, number) in names.iter().zip(0_u64..) {
        for partition in 0..PARTITIONS {
            let found = samples[&of_partition("lag_records", name, partition)];
            assert_eq!(found, lag(number, partition) as f64, "{name}, partition {partition}");
            assert_eq!(samples[&of_partition("parked_records", name, partition)], 0.0);
        }
        assert_eq!(samples[&of_group("lag_records", name)], lag_of_group(number) as f64, "{name}");
        assert_eq!(samples[&of_group("members", name)], 0.0);
        assert_eq!(samples[&of_group("rebalances_total", name)], 0.0);
    }
    assert_eq!(samples[&of_partition("lag_records", "billing", 1)], 5.0);
    assert_eq!(samples[&of_partition("parked_records", "billing", 1)], 4.0);
    assert_eq!(samples[&of_partition("lag_records", "shipping", 4)], 6.0);
    assert_eq!(samples.get(&of_partition("lag_records", "billing", 0)), None, "nothing is committed there");
    for (name, of_billing, of_shipping) in [
        ("lag_records", 5.0, 6.0),
        ("members", 1.0, 1.0),
        ("rebalances_total", 1.0, 1.0),
        ("parked_records", 4.0, 0.0),
        ("dead_lettered_records_total", 0.0, 1.0),
        ("dead_letters_pending", 0.0, 0.0),
        ("skipped_records_total", 0.0, 0.0),
        ("stopped_partitions", 0.0, 0.0),
    ] {
        assert_eq!(
            (samples[&of_group(name, "billing")], samples[&of_group(name, "shipping")]),
            (of_billing, of_shipping),
            "{name}"
        );
    }
    assert_eq!((sum(&samples, "groups"), sum(&samples, "groups_members")), (22.0, 2.0));
    assert_eq!(sum(&samples, "rebalances_total"), 2.0);
    assert_eq!(samples["corelane_groups_without_metrics"], 0.0);
    assert_eq!(samples["corelane_group_partitions_without_metrics"], 0.0);

    // The lag follows appends and commits; who leaves is another rebalance.
    client.produce(topic, 1, batch(&["value"]));
    let owned = None;
    let leave = GroupHeartbeatRequest { member_epoch: MemberEpoch::LEAVE, owned, ..billing.request(topic) };
    assert_eq!(client.ask(&leave).error, ErrorCode::None);
    let samples = metrics_when(broker.http_addr().unwrap(), |samples| {
        samples[&of_partition("lag_records", "billing", 1)] == 6.0
            && samples[&of_partition("lag_records", "g00", 1)] == 12.0
            && samples[&of_group("members", "billing")] == 0.0
    });
    assert_eq!(samples[&of_group("rebalances_total", "billing")], 2.0);
    stop(broker);
}

#[test]
fn the_groups_furthest_behind_are_named_and_the_others_counted() {
    const GROUPS: u64 = 40;
    let site = Site::new();
    let mut config = site.config(2);
    config.groups.metrics_max = 2;
    let broker = broker::start(config).unwrap();
    let mut client = Raw::connect(broker.addr());
    let topic = orders(&mut client, 12);
    let other = client.create("other", TopicConfig::default());
    for partition in 0..12 {
        client.produce(topic, partition, batch(&vec!["value"; 100]));
    }
    client.produce(other, 0, batch(&["value"; 7]));
    for number in 0..GROUPS {
        let name = format!("g{number:02}");
        for partition in 0..12 {
            assert_eq!(commit(&mut client, &name, None, topic, partition, number), ErrorCode::None);
        }
    }
    // Nobody is behind there.
    assert_eq!(commit(&mut client, "g39", None, other, 0, 7), ErrorCode::None);
    let lag_of_all: u64 = (0..GROUPS).map(|number| 12 * (100 - number)).sum();
    let left_out = (12 * GROUPS + 1 - 20) as f64;
    let samples = metrics_when(broker.http_addr().unwrap(), |samples| {
        // The sums leave out nothing.
        sum(samples, "groups_lag_records") == lag_of_all as f64
            && samples["corelane_group_partitions_without_metrics"] == left_out
    });
    assert_eq!(sum(&samples, "groups"), GROUPS as f64);
    let named = |prefix: &str| samples.keys().filter(|name| name.starts_with(prefix)).cloned().collect::<BTreeSet<String>>();
    assert_eq!(named("corelane_group_lag_records"), BTreeSet::from(["g00", "g01"].map(|name| of_group("lag_records", name))));
    assert_eq!(named("corelane_group_members").len(), 2);
    let first = (0..12).map(|partition| of_partition("lag_records", "g00", partition));
    let second = (0..8).map(|partition| of_partition("lag_records", "g01", partition));
    assert_eq!(named("corelane_group_partition_lag_records"), first.chain(second).collect());
    assert_eq!(samples["corelane_groups_without_metrics"], GROUPS as f64 - 2.0);
    stop(broker);
}
