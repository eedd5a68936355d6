//! Requests one by one, as a driver makes them.

use std::collections::BTreeMap;

use consumer_groups::{Event, Reply, Request};
use wire::{
    AlterGroupRequest, Change, CommitOffsetsRequest, CommittedOffset, DeleteGroupRequest, DescribeGroupRequest, ErrorCode,
    FailedRecord, GroupHeartbeatReply, GroupHeartbeatRequest, GroupState, ListGroupsRequest, MemberEpoch, Offset,
    OffsetsRetention, PartitionIndex, PartitionKey, RetryPolicyChanges, SettlePartition, SettleRequest, TopicId,
};

use crate::client::{Client, REBALANCE_MS, SESSION_MS, request};
use crate::world::{Fate, World, commit_partition, everything};

const TOPIC: TopicId = TopicId([1; 16]);

fn world() -> World {
    let mut world = World::new();
    world.create_or_grow("t0", 4);
    world
}

fn partition(number: u32) -> PartitionKey {
    PartitionKey::new(TOPIC, PartitionIndex(number))
}

/// The reply to a request that is answered at once.
#[track_caller]
fn ask(world: &mut World, request: Request) -> Reply {
    let token = world.token();
    world.handle(Event::Request { token, request });
    world.take_reply(token).expect("it is answered at once")
}

#[track_caller]
fn beat(world: &mut World, request: GroupHeartbeatRequest) -> GroupHeartbeatReply {
    let Reply::Heartbeat(reply) = ask(world, Request::Heartbeat { request, client: Default::default() }) else {
        panic!("a heartbeat is answered by its reply")
    };
    reply
}

fn join(member: &str, instance: Option<&str>) -> GroupHeartbeatRequest {
    let topics = Some(vec!["t0".to_owned()]);
    GroupHeartbeatRequest { topics, owned: Some(Vec::new()), ..request(member, instance, MemberEpoch::JOIN, 0) }
}

/// How many partitions a reply gives; `None` when it says that nothing has changed.
fn assigned(reply: &GroupHeartbeatReply) -> Option<usize> {
    reply.assignment.as_ref().map(|assignment| assignment.iter().map(|of| of.partitions.len()).sum())
}

fn commit(world: &mut World, member: Option<&str>, epoch: MemberEpoch, partition: PartitionKey, offset: u64) -> ErrorCode {
    let request = CommitOffsetsRequest {
        group: "g".to_owned(),
        member_id: member.map(str::to_owned),
        member_epoch: epoch,
        partitions: vec![commit_partition(partition, Offset(offset))],
    };
    let Reply::CommitOffsets(reply) = ask(world, Request::CommitOffsets(request)) else {
        panic!("a commit is answered by its reply")
    };
    reply.partitions.first().map_or(reply.error, |partition| partition.error)
}

#[test]
fn a_commit_needs_the_partition_in_its_epoch_and_goes_forward() {
    let mut world = world();
    let epoch = beat(&mut world, join("a", None)).member_epoch;
    assert_eq!(commit(&mut world, Some("a"), epoch, partition(0), 5), ErrorCode::None);
    assert_eq!(commit(&mut world, Some("a"), epoch, partition(0), 4), ErrorCode::CommitBehind);
    assert_eq!(commit(&mut world, Some("a"), epoch, partition(9), 4), ErrorCode::UnknownTopicOrPartition);
    assert_eq!(commit(&mut world, Some("a"), MemberEpoch(epoch.0 + 1), partition(0), 6), ErrorCode::FencedMemberEpoch);
    assert_eq!(commit(&mut world, Some("b"), epoch, partition(0), 6), ErrorCode::UnknownMember);
    assert_eq!(commit(&mut world, None, MemberEpoch::LEAVE, partition(0), 6), ErrorCode::GroupNotEmpty);
    assert_eq!(beat(&mut world, request("a", None, MemberEpoch::LEAVE, 0)).error, ErrorCode::None);
    assert_eq!(commit(&mut world, Some("a"), epoch, partition(0), 6), ErrorCode::UnknownMember);
    // Who assigns partitions to itself answers for itself.
    assert_eq!(commit(&mut world, None, MemberEpoch::LEAVE, partition(0), 2), ErrorCode::None);
    assert_eq!(world.committed(), BTreeMap::from([(partition(0), Offset(2))]));
}

#[test]
fn a_static_member_that_said_so_returns_to_its_partitions_at_once() {
    let mut world = world();
    assert_eq!(assigned(&beat(&mut world, join("a-1", Some("a")))), Some(4));
    beat(&mut world, join("b-1", Some("b")));
    world.check_replay();
    assert_eq!(beat(&mut world, request("a-1", Some("a"), MemberEpoch::LEAVE_STATIC, 0)).error, ErrorCode::None);
    world.advance(u64::from(SESSION_MS) - 1);
    let back = beat(&mut world, join("a-2", Some("a")));
    assert_eq!(assigned(&back), Some(2), "nobody else was given them");
    // Its former life is over.
    assert_eq!(beat(&mut world, request("a-1", Some("a"), MemberEpoch(1), 0)).error, ErrorCode::UnknownMember);
}

#[test]
fn a_static_member_that_died_returns_to_its_partitions_when_its_session_has_ended() {
    let mut world = world();
    assert_eq!(assigned(&beat(&mut world, join("a-1", Some("a")))), Some(4));
    world.advance(1_000);
    let back = beat(&mut world, join("a-2", Some("a")));
    assert_eq!(assigned(&back), Some(0), "the old one may live and believe in them");
    assert_eq!(beat(&mut world, request("a-1", Some("a"), MemberEpoch(1), 0)).error, ErrorCode::FencedInstance);
    world.advance(u64::from(SESSION_MS) - 1_001);
    let stay = || GroupHeartbeatRequest { owned: Some(Vec::new()), ..request("a-2", Some("a"), back.member_epoch, 0) };
    assert_eq!(assigned(&beat(&mut world, stay())).unwrap_or_default(), 0);
    world.advance(1);
    assert_eq!(assigned(&beat(&mut world, stay())), Some(4));
}

#[test]
fn a_heartbeat_waits_for_news_and_no_longer_than_its_time() {
    let mut world = world();
    world.clients.push(Client::new(0, vec!["t0".to_owned()], None, 3_000));
    world.clients.push(Client::new(1, vec!["t0".to_owned()], None, 3_000));
    for _ in 0..3 {
        world.beat(0, Fate::Arrives);
        world.make_all_durable();
    }
    assert_eq!(world.clients[0].belief.len(), 4);
    // Its heartbeat is under way when another joins: it hears of it at once.
    world.beat(1, Fate::Arrives);
    world.make_all_durable();
    world.clients[0].give_up();
    assert_eq!(world.clients[0].belief.len(), 2);
    world.beat(1, Fate::Arrives);
    world.beat(0, Fate::Arrives);
    world.make_all_durable();
    assert_eq!(world.clients[1].belief.len(), 2, "and the other as soon as they are given up: no time has passed");
    let token = world.token();
    let owned = Some(Vec::new());
    let waits = GroupHeartbeatRequest { owned, ..request("nobody", None, MemberEpoch(1), 3_000) };
    world.handle(Event::Request { token, request: Request::Heartbeat { request: waits, client: Default::default() } });
    assert!(world.take_reply(token).is_some(), "a refusal does not wait");
}

#[test]
fn a_member_that_does_not_give_up_loses_just_that_when_its_time_is_over() {
    let mut world = world();
    let first = beat(&mut world, join("a", None));
    let second = beat(&mut world, join("b", None));
    assert_eq!((assigned(&first), assigned(&second)), (Some(4), Some(0)));
    let owned = || {
        let partitions = (0..4).map(PartitionIndex).collect();
        Some(vec![wire::TopicPartitions { topic: TOPIC, partitions }])
    };
    let told = beat(&mut world, GroupHeartbeatRequest { owned: owned(), ..request("a", None, first.member_epoch, 0) });
    assert_eq!(assigned(&told), Some(2));
    // It lives, has seen what it is to give up, and goes on holding it.
    let mut waited_ms = 0;
    let got = loop {
        beat(&mut world, GroupHeartbeatRequest { owned: owned(), ..request("a", None, told.member_epoch, 0) });
        let reply = beat(&mut world, request("b", None, second.member_epoch, 0));
        if assigned(&reply) == Some(2) {
            break reply;
        }
        world.advance(500);
        waited_ms += 500;
    };
    assert_eq!(waited_ms, u64::from(REBALANCE_MS));
    assert_eq!(got.error, ErrorCode::None);
    let kept = beat(&mut world, request("a", None, told.member_epoch, 0));
    assert_eq!((kept.error, assigned(&kept)), (ErrorCode::None, Some(2)), "what it keeps it has kept");
    world.check_replay();
}

#[test]
fn a_late_heartbeat_from_before_a_partition_was_given_does_not_give_it_up() {
    let mut world = world();
    let client = |number| Client::new(number, vec!["t0".to_owned()], None, 0);
    let step = |world: &mut World, who: usize, fate: Fate| {
        world.clients[who].give_up();
        world.beat(who, fate);
        world.make_all_durable();
    };
    world.clients.extend([client(0), client(1)]);
    for who in [0, 1, 0, 0, 1] {
        step(&mut world, who, Fate::Arrives);
    }
    assert_eq!((world.clients[0].belief.len(), world.clients[1].belief.len()), (2, 2));
    // Another copy of this heartbeat, in which the first says that it owns two, is still on its way.
    step(&mut world, 0, Fate::Twice);
    world.leave(1, MemberEpoch::LEAVE, Fate::Arrives);
    step(&mut world, 0, Fate::Arrives);
    assert_eq!(world.clients[0].belief.len(), 4);
    world.clients.push(client(2));
    step(&mut world, 2, Fate::Arrives);
    step(&mut world, 0, Fate::Arrives);
    assert_eq!(world.clients[0].belief.len(), 4, "told to give up two, and busy with them");
    world.late_copy(0);
    step(&mut world, 2, Fate::Arrives);
    world.check();
    assert_eq!(world.clients[2].belief.len(), 0);
    step(&mut world, 0, Fate::Arrives);
    step(&mut world, 2, Fate::Arrives);
    world.check();
    assert_eq!((world.clients[0].belief.len(), world.clients[2].belief.len()), (2, 2));
}

#[test]
fn a_group_that_nobody_uses_is_forgotten_unless_it_is_kept() {
    let mut world = world();
    let hour_ms = 60 * 60 * 1000;
    commit(&mut world, None, MemberEpoch::LEAVE, partition(0), 7);
    world.advance(hour_ms - 1);
    // The same again, which is a sign of life.
    commit(&mut world, None, MemberEpoch::LEAVE, partition(0), 7);
    world.advance(hour_ms - 1);
    assert_eq!(world.committed().len(), 1);
    world.let_offsets_go();
    world.advance(2);
    assert!(world.committed().is_empty() && everything(&world.coordinator).is_empty());
    world.check_replay();

    assert_eq!(alter_retention(&mut world, Change::Set(OffsetsRetention::Forever)), None);
    commit(&mut world, None, MemberEpoch::LEAVE, partition(0), 7);
    world.advance(50 * hour_ms);
    assert_eq!(world.committed().len(), 1);
    world.check_replay();

    assert_eq!(alter_retention(&mut world, Change::Set(OffsetsRetention::Ms(3 * hour_ms))), Some(3 * hour_ms));
    assert_eq!(alter_retention(&mut world, Change::Keep), Some(3 * hour_ms));
    // Without a retention of its own the group has the broker's again, and nothing is stored of one.
    assert_eq!(alter_retention(&mut world, Change::Unset), Some(hour_ms));
    world.check_replay();
    world.let_offsets_go();
    world.advance(hour_ms);
    assert!(world.committed().is_empty() && everything(&world.coordinator).is_empty());
    world.check_replay();
}

/// The retention after the change, in milliseconds; `None` for ever.
fn alter_retention(world: &mut World, offsets_retention: Change<OffsetsRetention>) -> Option<u64> {
    let group = "g".to_owned();
    let request = AlterGroupRequest { group, topic: None, retry: Change::Keep, offsets_retention, resume: false };
    let Reply::AlterGroup(reply) = ask(world, Request::AlterGroup(request)) else { panic!("a reply to it") };
    assert_eq!(reply.error, ErrorCode::None, "{:?}", reply.message);
    reply.offsets_retention_ms
}

#[test]
fn a_group_is_listed_described_and_deleted() {
    let mut world = world();
    let epoch = beat(&mut world, join("a", None)).member_epoch;
    commit(&mut world, Some("a"), epoch, partition(1), 5);
    let list = |after: Option<&str>| {
        let after = after.map(str::to_owned);
        Request::ListGroups(ListGroupsRequest { prefix: String::new(), state: None, after, limit: 0 })
    };
    let Reply::ListGroups(listed) = ask(&mut world, list(None)) else { panic!("a list") };
    let group = &listed.groups[0];
    assert_eq!((group.group.as_str(), group.state, group.members, group.partitions), ("g", GroupState::Stable, 1, 4));
    let Reply::ListGroups(listed) = ask(&mut world, list(Some("g"))) else { panic!("a list") };
    assert!(listed.groups.is_empty() && !listed.more);

    let describe = || Request::DescribeGroup(DescribeGroupRequest { group: "g".to_owned(), after: None });
    let Reply::DescribeGroup(described) = ask(&mut world, describe()) else { panic!("a description") };
    assert_eq!((described.error, described.members.len(), described.partitions.len()), (ErrorCode::None, 1, 4));
    let one = &described.partitions[1];
    assert_eq!((one.name.as_str(), one.member_id.as_deref()), ("t0", Some("a")));
    assert_eq!(one.committed.as_ref().map(|committed| committed.offset), Some(Offset(5)));

    let delete = || Request::DeleteGroup(DeleteGroupRequest { group: "g".to_owned() });
    let Reply::DeleteGroup(refused) = ask(&mut world, delete()) else { panic!("a deletion") };
    assert_eq!(refused.error, ErrorCode::GroupNotEmpty);
    beat(&mut world, request("a", None, MemberEpoch::LEAVE, 0));
    let Reply::DeleteGroup(done) = ask(&mut world, delete()) else { panic!("a deletion") };
    assert_eq!(done.error, ErrorCode::None);
    world.check_replay();
    assert!(everything(&world.coordinator).is_empty());
    let Reply::DescribeGroup(described) = ask(&mut world, describe()) else { panic!("a description") };
    assert_eq!(described.error, ErrorCode::GroupNotFound);
}

#[test]
fn what_breaks_the_rules_is_refused_and_leaves_no_group() {
    let mut world = world();
    let no_topics = GroupHeartbeatRequest { topics: None, ..join("a", None) };
    assert_eq!(beat(&mut world, no_topics).error, ErrorCode::InvalidRequest);
    let no_name = GroupHeartbeatRequest { group: String::new(), ..join("a", None) };
    assert_eq!(beat(&mut world, no_name).error, ErrorCode::InvalidGroupId);
    assert_eq!(beat(&mut world, request("a", None, MemberEpoch(3), 0)).error, ErrorCode::UnknownMember);
    assert_eq!(commit(&mut world, None, MemberEpoch::LEAVE, partition(9), 1), ErrorCode::UnknownTopicOrPartition);
    assert_eq!(world.coordinator.groups(), 0);
    assert!(world.log.is_empty(), "and nothing was stored");
    // Leaving is done already.
    assert_eq!(beat(&mut world, request("a", None, MemberEpoch::LEAVE, 0)).error, ErrorCode::None);
}

fn commit_by_hand(world: &mut World) {
    assert_eq!(commit(world, None, MemberEpoch::LEAVE, partition(0), 7), ErrorCode::None);
}

const HOUR_MS: i64 = 60 * 60 * 1000;

#[test]
fn a_group_that_is_old_when_the_broker_starts_gets_its_retention_once_more() {
    let mut world = world();
    commit_by_hand(&mut world);
    world.make_all_durable();
    world.now.wall.0 += 365 * 24 * HOUR_MS;
    world.crash(0);
    world.handle(Event::Tick { is_wall_trusted: true });
    world.advance(HOUR_MS as u64 - 1);
    assert_eq!(world.committed().len(), 1);
    world.let_offsets_go();
    world.advance(2);
    assert!(everything(&world.coordinator).is_empty());
}

#[test]
fn a_clock_that_jumped_takes_no_group_until_it_is_trusted() {
    let mut world = world();
    commit_by_hand(&mut world);
    world.now.wall.0 += 8 * 24 * HOUR_MS;
    world.now.steady_ms += HOUR_MS as u64;
    world.handle(Event::Tick { is_wall_trusted: false });
    assert_eq!(world.committed().len(), 1);
    world.let_offsets_go();
    world.advance(60_000);
    assert!(everything(&world.coordinator).is_empty());
}

/// A member has failed a record of partition 0 and left.
fn failed_and_left(world: &mut World) {
    let epoch = beat(world, join("a", None)).member_epoch;
    let failed = FailedRecord { offset: Offset(0), key: Some(b"k".to_vec()), attempt: 1, reason: "no".to_owned() };
    let part = SettlePartition {
        topic: TOPIC,
        partition: PartitionIndex(0),
        deferred: Vec::new(),
        done: Vec::new(),
        failed: vec![failed],
        commit: Some(CommittedOffset { offset: Offset(1), leader_epoch: None, metadata: None }),
    };
    let request = SettleRequest { group: "g".to_owned(), member_id: "a".to_owned(), member_epoch: epoch, partitions: vec![part] };
    let Reply::Settle(reply) = ask(world, Request::Settle { request, random: 0 }) else { panic!("a settlement") };
    assert_eq!((reply.error, reply.partitions[0].error), (ErrorCode::None, ErrorCode::None));
    beat(world, request_to_leave("a"));
}

fn request_to_leave(member: &str) -> GroupHeartbeatRequest {
    request(member, None, MemberEpoch::LEAVE, 0)
}

fn describe(world: &mut World) -> wire::DescribeGroupReply {
    let request = Request::DescribeGroup(DescribeGroupRequest { group: "g".to_owned(), after: None });
    let Reply::DescribeGroup(described) = ask(world, request) else { panic!("a description") };
    described
}

fn alter_attempts(attempts_max: u32) -> Request {
    let retry = RetryPolicyChanges { attempts_max: Some(attempts_max), ..RetryPolicyChanges::default() };
    let (group, retry) = ("g".to_owned(), Change::Set(retry));
    Request::AlterGroup(AlterGroupRequest { group, topic: None, retry, offsets_retention: Change::Keep, resume: false })
}

#[test]
fn what_is_parked_keeps_an_empty_group() {
    let mut world = world();
    failed_and_left(&mut world);
    world.advance(365 * 24 * HOUR_MS as u64);
    let described = describe(&mut world);
    assert_eq!((described.error, described.partitions[0].parked_records), (ErrorCode::None, 1));
    world.check_replay();
}

#[test]
fn what_an_operator_set_outlives_the_offsets_of_an_empty_group() {
    let mut world = world();
    ask(&mut world, alter_attempts(9));
    commit_by_hand(&mut world);
    world.let_offsets_go();
    world.advance(50 * HOUR_MS as u64);
    let described = describe(&mut world);
    assert_eq!((described.error, described.partitions.len(), described.retry.attempts_max), (ErrorCode::None, 0, 9));
    world.check_replay();
}

#[test]
fn a_group_is_not_deleted_before_its_dead_letters_are_written() {
    let mut world = world();
    ask(&mut world, alter_attempts(1));
    failed_and_left(&mut world);
    let delete = |world: &mut World| {
        let request = Request::DeleteGroup(DeleteGroupRequest { group: "g".to_owned() });
        let Reply::DeleteGroup(reply) = ask(world, request) else { panic!("a deletion") };
        reply.error
    };
    assert_eq!(describe(&mut world).partitions[0].dead_letters_pending, 1);
    assert_eq!(delete(&mut world), ErrorCode::DeadLettersPending);
    for _ in ["a lane", "the letter"] {
        world.make_all_durable();
        world.deliver_dead_letters();
    }
    assert_eq!(describe(&mut world).partitions[0].dead_letters_pending, 0);
    assert_eq!(delete(&mut world), ErrorCode::None);
    assert!(everything(&world.coordinator).is_empty());
}
