//! Consumer groups: members share the partitions, offsets outlive everything, and any shard answers.

use crate::support::{Raw, Site, batch, stop};
use std::collections::BTreeSet;
use wire::{
    AlterGroupRequest, AlterOffsetsRequest, AlterPartition, AlterTopicRequest, Change, CommitOffsetsRequest, CommitPartition,
    CommittedOffset, DeleteGroupRequest, DescribeGroupRequest, DescribeTopicRequest, Durability, ErrorCode, FailedRecord,
    FetchOffsetsRequest, FindCoordinatorRequest, GroupHeartbeatReply, GroupHeartbeatRequest, GroupState, LeaderEpoch,
    ListGroupsRequest, MemberEpoch, Offset, PartitionIndex, PartitionKey, RetryPolicyChanges, SettlePartition, SettleRequest,
    TopicConfig, TopicConfigChanges, TopicId, TopicPartitions,
};

/// A member as a client would keep it: what it owns, and in which epoch.
pub(crate) struct Member {
    group: &'static str,
    pub(crate) id: String,
    pub(crate) epoch: MemberEpoch,
    pub(crate) owned: BTreeSet<u32>,
}

impl Member {
    pub(crate) fn new(group: &'static str, id: &str) -> Member {
        Member { group, id: id.to_owned(), epoch: MemberEpoch::JOIN, owned: BTreeSet::new() }
    }

    pub(crate) fn request(&self, topic: TopicId) -> GroupHeartbeatRequest {
        let is_joining = self.epoch == MemberEpoch::JOIN;
        let owned = TopicPartitions { topic, partitions: self.owned.iter().map(|index| PartitionIndex(*index)).collect() };
        GroupHeartbeatRequest {
            group: self.group.to_owned(),
            member_id: self.id.clone(),
            instance_id: None,
            member_epoch: self.epoch,
            max_wait_ms: 0,
            rebalance_timeout_ms: 60_000,
            session_timeout_ms: 60_000,
            assignor: None,
            topics: is_joining.then(|| vec!["orders".to_owned()]),
            owned: Some(if is_joining { Vec::new() } else { vec![owned] }),
        }
    }

    /// Sends heartbeats until nothing is new.
    pub(crate) fn settle(&mut self, client: &mut Raw, topic: TopicId) {
        loop {
            let reply = self.beat(client, topic);
            assert_eq!(reply.error, ErrorCode::None, "{:?}", reply.message);
            self.epoch = reply.member_epoch;
            let Some(assignment) = reply.assignment else { return };
            let assigned = assignment.iter().flat_map(|of| of.partitions.iter().map(|index| index.0)).collect();
            if std::mem::replace(&mut self.owned, assigned) == self.owned && !self.owned.is_empty() {
                return;
            }
        }
    }

    pub(crate) fn beat(&self, client: &mut Raw, topic: TopicId) -> GroupHeartbeatReply {
        client.ask(&self.request(topic))
    }

    pub(crate) fn commit(&self, client: &mut Raw, topic: TopicId, partition: u32, offset: u64) -> ErrorCode {
        commit(client, self.group, Some((&self.id, self.epoch)), topic, partition, offset)
    }
}

pub(crate) fn commit(
    client: &mut Raw,
    group: &str,
    member: Option<(&str, MemberEpoch)>,
    topic: TopicId,
    partition: u32,
    offset: u64,
) -> ErrorCode {
    let commit =
        CommittedOffset { offset: Offset(offset), leader_epoch: Some(LeaderEpoch(1)), metadata: Some("note".to_owned()) };
    let reply = client.ask(&CommitOffsetsRequest {
        group: group.to_owned(),
        member_id: member.map(|(id, _)| id.to_owned()),
        member_epoch: member.map_or(MemberEpoch::LEAVE, |(_, epoch)| epoch),
        partitions: vec![CommitPartition { topic, partition: PartitionIndex(partition), commit }],
    });
    if reply.error.is_none() { reply.partitions[0].error } else { reply.error }
}

/// What the group has committed, in the order of the partitions.
fn committed(client: &mut Raw, group: &str) -> Vec<(u32, u64)> {
    let request = FetchOffsetsRequest { group: group.to_owned(), partitions: None, after: None };
    let reply = client.ask(&request);
    assert_eq!(reply.error, ErrorCode::None, "{:?}", reply.message);
    let known = reply.partitions.into_iter().filter_map(|part| part.committed.map(|at| (part.partition.0, at.offset.0)));
    known.collect()
}

fn list(client: &mut Raw, prefix: &str, after: Option<&str>, limit: u32) -> (Vec<String>, bool) {
    let request = ListGroupsRequest { prefix: prefix.to_owned(), state: None, after: after.map(str::to_owned), limit };
    let reply = client.ask(&request);
    assert_eq!(reply.error, ErrorCode::None, "{:?}", reply.message);
    (reply.groups.into_iter().map(|group| group.group).collect(), reply.more)
}

pub(crate) fn orders(client: &mut Raw, partitions: u32) -> TopicId {
    client.create("orders", TopicConfig { partitions, ..TopicConfig::default() })
}

#[test]
fn members_share_the_partitions_and_hand_them_over() {
    let site = Site::new();
    let broker = site.start(2);
    // Each member talks to another shard: one of them at least is not the coordinator's.
    let (mut first_client, _) = Raw::connect_to_shard(broker.addr(), Some(0));
    let (mut second_client, _) = Raw::connect_to_shard(broker.addr(), Some(1));
    let topic = orders(&mut first_client, 4);
    let (mut first, mut second) = (Member::new("billing", "m-1"), Member::new("billing", "m-2"));
    first.settle(&mut first_client, topic);
    assert_eq!(first.owned, BTreeSet::from([0, 1, 2, 3]));

    second.settle(&mut second_client, topic);
    assert!(second.owned.is_empty(), "nothing is given before it is given up");
    first.settle(&mut first_client, topic);
    assert_eq!(first.owned.len(), 2);
    second.settle(&mut second_client, topic);
    assert_eq!(second.owned.len(), 2);
    assert!(first.owned.is_disjoint(&second.owned));

    let mine = *first.owned.first().unwrap();
    assert_eq!(first.commit(&mut first_client, topic, mine, 7), ErrorCode::None);
    assert_ne!(second.commit(&mut second_client, topic, mine, 9), ErrorCode::None, "only the owner commits");
    assert_eq!(committed(&mut second_client, "billing"), [(mine, 7)]);

    // One leaves: the other has it all.
    let leave = GroupHeartbeatRequest { member_epoch: MemberEpoch::LEAVE, owned: None, ..first.request(topic) };
    assert_eq!(first_client.ask(&leave).error, ErrorCode::None);
    second.settle(&mut second_client, topic);
    assert_eq!(second.owned, BTreeSet::from([0, 1, 2, 3]));
    assert_ne!(first.commit(&mut first_client, topic, mine, 8), ErrorCode::None, "who left commits no more");
    stop(broker);
}

#[test]
fn groups_and_offsets_are_there_after_restarts_with_other_shards() {
    let site = Site::new();
    let mut topic = None;
    let mut member = Member::new("billing", "m-1");
    for (round, shards) in (1..).zip([2, 1, 3]) {
        let broker = site.start(shards);
        let mut client = Raw::connect(broker.addr());
        let topic = *topic.get_or_insert_with(|| orders(&mut client, 3));
        // The session goes on over the restart: the member is known.
        member.settle(&mut client, topic);
        assert_eq!(member.owned, BTreeSet::from([0, 1, 2]));
        for partition in 0..3 {
            assert_eq!(member.commit(&mut client, topic, partition, round * 10 + u64::from(partition)), ErrorCode::None);
        }
        assert_eq!(commit(&mut client, "alone", None, topic, 1, round), ErrorCode::None);
        stop(broker);

        let broker = site.start(shards);
        let mut client = Raw::connect(broker.addr());
        assert_eq!(committed(&mut client, "billing"), [(0, round * 10), (1, round * 10 + 1), (2, round * 10 + 2)]);
        assert_eq!(committed(&mut client, "alone"), [(1, round)]);
        stop(broker);
    }
}

#[test]
fn a_commit_of_a_member_does_not_go_back_and_an_operator_may() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topic = orders(&mut client, 1);
    let mut member = Member::new("billing", "m-1");
    member.settle(&mut client, topic);
    assert_eq!(member.commit(&mut client, topic, 0, 5), ErrorCode::None);
    assert_ne!(member.commit(&mut client, topic, 0, 4), ErrorCode::None);
    assert_eq!(committed(&mut client, "billing"), [(0, 5)]);

    let partitions = vec![AlterPartition { topic, partition: PartitionIndex(0), offset: Some(Offset(2)) }];
    let reset = AlterOffsetsRequest { group: "billing".to_owned(), clear_parked: false, partitions };
    let refused = client.ask(&reset);
    assert!(!refused.error.is_none() || !refused.partitions[0].error.is_none(), "a member owns it");
    let leave = GroupHeartbeatRequest { member_epoch: MemberEpoch::LEAVE, owned: None, ..member.request(topic) };
    assert_eq!(client.ask(&leave).error, ErrorCode::None);
    let altered = client.ask(&reset);
    assert_eq!((altered.error, altered.partitions[0].error), (ErrorCode::None, ErrorCode::None));
    assert_eq!(committed(&mut client, "billing"), [(0, 2)]);
    stop(broker);
}

#[test]
fn groups_are_listed_described_and_deleted_from_any_shard() {
    let site = Site::new();
    let broker = site.start(3);
    let (mut client, _) = Raw::connect_to_shard(broker.addr(), Some(1));
    assert_eq!(list(&mut client, "", None, 0), (Vec::new(), false), "there is no group, and none is made by asking");
    let topic = orders(&mut client, 2);
    client.produce(topic, 0, batch(&["a", "b", "c"]));
    let names: Vec<String> = (0..40).map(|number| format!("g{number:02}")).collect();
    for name in &names {
        assert_eq!(commit(&mut client, name, None, topic, 0, 1), ErrorCode::None);
    }
    assert_eq!(list(&mut client, "", None, 0), (names.clone(), false));
    assert_eq!(list(&mut client, "g1", None, 0).0, names[10..20]);
    // Page by page, each group once.
    let mut paged = Vec::new();
    loop {
        let (page, more) = list(&mut client, "", paged.last().map(String::as_str), 7);
        assert!(page.len() <= 7);
        paged.extend(page);
        if !more {
            break;
        }
    }
    assert_eq!(paged, names);

    let described = client.ask(&DescribeGroupRequest { group: "g05".to_owned(), after: None });
    assert_eq!((described.error, described.state), (ErrorCode::None, GroupState::Empty));
    let [partition] = &described.partitions[..] else { panic!("one partition is known: {described:?}") };
    let at = partition.committed.as_ref().unwrap();
    assert_eq!((at.offset, partition.high_watermark, at.metadata.as_deref()), (Offset(1), Offset(3), Some("note")));

    let found = client.ask(&FindCoordinatorRequest { groups: names.clone() });
    let shards: BTreeSet<u16> = found.groups.iter().map(|group| group.shard).collect();
    assert!(found.groups.iter().all(|group| group.error.is_none()));
    assert_eq!(shards, BTreeSet::from([0, 1, 2]), "forty groups are spread over all shards");
    assert_eq!(found.groups[5].shard, described.shard);

    assert_eq!(client.ask(&DeleteGroupRequest { group: "g05".to_owned() }).error, ErrorCode::None);
    assert_eq!(client.ask(&DeleteGroupRequest { group: "g05".to_owned() }).error, ErrorCode::GroupNotFound);
    assert_eq!(list(&mut client, "g0", None, 0).0.len(), 9);
    assert_eq!(committed(&mut client, "g05"), []);
    stop(broker);
}

#[test]
fn what_a_group_may_not_ask_is_said() {
    let site = Site::new();
    let broker = site.start(1);
    let mut client = Raw::connect(broker.addr());
    let topic = orders(&mut client, 1);
    let unknown = CommitOffsetsRequest {
        group: "billing".to_owned(),
        member_id: Some("nobody".to_owned()),
        member_epoch: MemberEpoch(3),
        partitions: Vec::new(),
    };
    assert_eq!(client.ask(&unknown).error, ErrorCode::UnknownMember);
    assert_eq!(commit(&mut client, "", None, topic, 0, 1), ErrorCode::InvalidGroupId);
    assert_eq!(commit(&mut client, "billing", None, TopicId([9; 16]), 0, 1), ErrorCode::UnknownTopicOrPartition);
    let parts = Some(vec![PartitionKey::new(topic, PartitionIndex(0))]);
    let fetched = client.ask(&FetchOffsetsRequest { group: "billing".to_owned(), partitions: parts, after: None });
    assert_eq!((fetched.error, fetched.partitions[0].committed.clone()), (ErrorCode::None, None));
    stop(broker);
}

#[test]
fn the_log_of_groups_is_trimmed_and_read_back() {
    let site = Site::new();
    let mut config = site.config(1);
    config.groups.partitions = 1;
    let broker = broker::start(config.clone()).unwrap();
    let mut client = Raw::connect(broker.addr());
    let topic = orders(&mut client, 1000);
    // Far more than the growth that makes a snapshot due, of the same few keys.
    let metadata = "m".repeat(900);
    let parts = |offset| {
        let commit = CommittedOffset { offset: Offset(offset), leader_epoch: None, metadata: Some(metadata.clone()) };
        (0..1000).map(move |index| CommitPartition { topic, partition: PartitionIndex(index), commit: commit.clone() }).collect()
    };
    for offset in 1..=20 {
        let request = CommitOffsetsRequest {
            group: "billing".to_owned(),
            member_id: None,
            member_epoch: MemberEpoch::LEAVE,
            partitions: parts(offset),
        };
        assert_eq!(client.ask(&request).error, ErrorCode::None);
    }
    let log_start = |client: &mut Raw| {
        let described = client.ask(&DescribeTopicRequest { name: "__groups".to_owned() });
        described.partitions[0].log_start.0
    };
    // The snapshot is written behind the commits.
    while log_start(&mut client) == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    stop(broker);
    let broker = broker::start(config).unwrap();
    let mut client = Raw::connect(broker.addr());
    assert!(log_start(&mut client) > 0);
    let found = committed(&mut client, "billing");
    assert_eq!(found.len(), 1000);
    assert!(found.iter().all(|(_, offset)| *offset == 20));
    stop(broker);
}

#[test]
fn a_stop_while_groups_are_read_back_writes_nothing_of_what_was_read() {
    let site = Site::new();
    let mut config = site.config(1);
    config.groups.partitions = 1;
    let broker = broker::start(config.clone()).unwrap();
    let mut client = Raw::connect(broker.addr());
    let topic = orders(&mut client, 2);
    let (mut first, mut second) = (Member::new("billing", "m-1"), Member::new("billing", "m-2"));
    first.settle(&mut client, topic);
    // Long to read back, and less than makes a snapshot due: whoever stops in between knows one member, and nothing of the growth.
    let other = client.create("other", TopicConfig { partitions: 1000, ..TopicConfig::default() });
    for offset in 0..20 {
        let commit = CommittedOffset { offset: Offset(offset), leader_epoch: None, metadata: None };
        let parts =
            (0..1000).map(|index| CommitPartition { topic: other, partition: PartitionIndex(index), commit: commit.clone() });
        let (group, member_epoch) = ("other".to_owned(), MemberEpoch::LEAVE);
        let request = CommitOffsetsRequest { group, member_id: None, member_epoch, partitions: parts.collect() };
        assert_eq!(client.ask(&request).error, ErrorCode::None);
    }
    let grow = TopicConfigChanges { partitions: Some(4), ..TopicConfigChanges::default() };
    let grown = client.ask(&AlterTopicRequest { name: "orders".to_owned(), changes: grow, validate_only: false });
    assert_eq!(grown.error, ErrorCode::None);
    first.settle(&mut client, topic);
    second.settle(&mut client, topic);
    first.settle(&mut client, topic);
    second.settle(&mut client, topic);
    assert_eq!((first.owned.len(), second.owned.len()), (2, 2));
    let seen = |client: &mut Raw| {
        let log = client.ask(&DescribeTopicRequest { name: "__groups".to_owned() });
        let group = client.ask(&DescribeGroupRequest { group: "billing".to_owned(), after: None });
        assert_eq!(group.error, ErrorCode::None, "{:?}", group.message);
        (log.partitions[0].high_watermark, group.epoch, group.members, group.partitions)
    };
    let before = seen(&mut client);
    stop(broker);
    for _ in 0..5 {
        stop(broker::start(config.clone()).unwrap());
    }
    let broker = broker::start(config).unwrap();
    assert_eq!(seen(&mut Raw::connect(broker.addr())), before);
    stop(broker);
}

#[test]
fn dead_letters_wait_for_a_topic_that_keeps_them_and_are_seen_meanwhile() {
    let site = Site::new();
    let broker = site.start(2);
    let mut client = Raw::connect(broker.addr());
    let topic = orders(&mut client, 1);
    client.produce(topic, 0, batch(&["poison"]));
    let relaxed = TopicConfig { durability: Durability::Relaxed, ..TopicConfig::default() };
    let letters = client.create("orders.dlq.billing", relaxed);
    let group = || "billing".to_owned();
    let once = Change::Set(RetryPolicyChanges { attempts_max: Some(1), ..RetryPolicyChanges::default() });
    let (retry, offsets_retention) = (once, Change::Keep);
    let policy = AlterGroupRequest { group: group(), topic: None, retry, offsets_retention, resume: false };
    assert_eq!(client.ask(&policy).error, ErrorCode::None);
    let mut member = Member::new("billing", "m-1");
    member.settle(&mut client, topic);
    let failed = FailedRecord { offset: Offset(0), key: None, attempt: 1, reason: "poison".to_owned() };
    let part = SettlePartition {
        topic,
        partition: PartitionIndex(0),
        deferred: Vec::new(),
        done: Vec::new(),
        failed: vec![failed],
        commit: Some(CommittedOffset { offset: Offset(1), leader_epoch: None, metadata: None }),
    };
    let (member_id, member_epoch) = (member.id.clone(), member.epoch);
    let settled = client.ask(&SettleRequest { group: group(), member_id, member_epoch, partitions: vec![part] });
    assert_eq!((settled.error, settled.partitions[0].error), (ErrorCode::None, ErrorCode::None));
    let leave = GroupHeartbeatRequest { member_epoch: MemberEpoch::LEAVE, owned: None, ..member.request(topic) };
    assert_eq!(client.ask(&leave).error, ErrorCode::None);

    let counts = |client: &mut Raw| {
        let described = client.ask(&DescribeGroupRequest { group: group(), after: None });
        (described.partitions[0].dead_lettered, described.partitions[0].dead_letters_pending)
    };
    for _ in 0..50 {
        assert_eq!(counts(&mut client), (1, 1));
        assert_eq!(client.ask(&DeleteGroupRequest { group: group() }).error, ErrorCode::DeadLettersPending);
    }
    assert_eq!(client.fetch(letters, 0, 0).0.high_watermark, Offset(0));
    let changes = TopicConfigChanges { durability: Some(Durability::Stable), ..TopicConfigChanges::default() };
    let altered = client.ask(&AlterTopicRequest { name: "orders.dlq.billing".to_owned(), changes, validate_only: false });
    assert_eq!(altered.error, ErrorCode::None);
    while counts(&mut client) != (1, 0) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(client.read_all(letters, 0), [b"poison"]);
    assert_eq!(client.ask(&DeleteGroupRequest { group: group() }).error, ErrorCode::None);
    stop(broker);
}
