//! What groups cost: memory, stored bytes, and the time to read them back. It prints, and judges no time.
//!
//! `CORELANE_GROUPS=10000 cargo test -p consumer_groups --test figures -- --nocapture`

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use consumer_groups::{Coordinator, Event, Now, Options, Outcome, Reply, Request, StateRecord, Token, Topic, Topics};
use wire::{
    CommitOffsetsRequest, CommitPartition, CommittedOffset, GroupHeartbeatRequest, MemberEpoch, Offset, PartitionIndex,
    TimestampMs, TopicId, TopicPartitions,
};

static HELD_BYTES: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; counting touches an atomic that needs no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD_BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise about `pointer` and `layout`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const PARTITIONS: u32 = 8;
const MEMBERS: usize = 2;
const TOPIC: TopicId = TopicId([7; 16]);
const NOW: Now = Now { steady_ms: 1_000, wall: TimestampMs(1_764_000_000_000) };

/// One topic.
struct One;

impl Topics for One {
    fn by_name(&self, name: &str) -> Option<Topic<'_>> {
        (name == "orders").then_some(Topic { id: TOPIC, name: "orders", partitions: PARTITIONS })
    }

    fn by_id(&self, id: TopicId) -> Option<Topic<'_>> {
        (id == TOPIC).then_some(Topic { id: TOPIC, name: "orders", partitions: PARTITIONS })
    }
}

fn ask(coordinator: &mut Coordinator, request: Request) -> Reply {
    let mut outcome = Outcome::default();
    coordinator.handle(NOW, &One, Event::Request { token: Token(1), request }, &mut outcome);
    outcome.replies.pop().expect("it is answered at once").1
}

fn heartbeat(group: &str, member: &str, member_epoch: MemberEpoch, owned: &[u32]) -> Request {
    let partitions = owned.iter().copied().map(PartitionIndex).collect();
    let request = GroupHeartbeatRequest {
        group: group.to_owned(),
        member_id: member.to_owned(),
        instance_id: None,
        member_epoch,
        rebalance_timeout_ms: 60_000,
        session_timeout_ms: 30_000,
        max_wait_ms: 0,
        assignor: None,
        topics: (member_epoch == MemberEpoch::JOIN).then(|| vec!["orders".to_owned()]),
        owned: Some(vec![TopicPartitions { topic: TOPIC, partitions }]),
    };
    Request::Heartbeat { request, client: Default::default() }
}

/// A group of two members with four partitions each, and a committed offset of each.
fn make_group(coordinator: &mut Coordinator, group: &str) {
    let members: Vec<String> = (0..MEMBERS).map(|number| format!("{number:08}-1111-4222-8333-444455556666")).collect();
    let mut states = vec![(MemberEpoch::JOIN, Vec::new()); MEMBERS];
    for _ in 0..3 {
        for (member, (epoch, owned)) in members.iter().zip(&mut states) {
            let Reply::Heartbeat(reply) = ask(coordinator, heartbeat(group, member, *epoch, owned)) else {
                panic!("a heartbeat")
            };
            *epoch = reply.member_epoch;
            if let Some(assignment) = reply.assignment {
                *owned = assignment.iter().flat_map(|of| of.partitions.iter().map(|partition| partition.0)).collect();
            }
        }
    }
    for (member, (epoch, owned)) in members.iter().zip(&states) {
        assert_eq!(owned.len(), PARTITIONS as usize / MEMBERS);
        let commit = CommittedOffset { offset: Offset(123_456), leader_epoch: None, metadata: None };
        let partitions = owned.iter().map(|&number| CommitPartition {
            topic: TOPIC,
            partition: PartitionIndex(number),
            commit: commit.clone(),
        });
        let request = CommitOffsetsRequest {
            group: group.to_owned(),
            member_id: Some(member.clone()),
            member_epoch: *epoch,
            partitions: partitions.collect(),
        };
        ask(coordinator, Request::CommitOffsets(request));
    }
}

fn groups() -> usize {
    std::env::var("CORELANE_GROUPS").ok().map_or(200, |text| text.parse().expect("a number of groups"))
}

#[test]
#[expect(clippy::disallowed_methods, reason = "it prints how long things take, and judges nothing by it")]
fn memory_and_load_time_of_many_groups() {
    let count = groups();
    let mut coordinator = Coordinator::new(Options::default());
    let names: Vec<String> = (0..count).map(|number| format!("group-{number}")).collect();
    let before_bytes = HELD_BYTES.load(Ordering::Relaxed);
    names.iter().for_each(|name| make_group(&mut coordinator, name));
    let held_bytes = HELD_BYTES.load(Ordering::Relaxed) - before_bytes;

    let records = coordinator.snapshot(None, usize::MAX).records;
    let stored_bytes: usize = records.iter().map(StateRecord::bytes).sum();
    let start = Instant::now();
    let mut loaded = Coordinator::new(Options::default());
    records.iter().for_each(|record| loaded.replay(&record.key, record.value.as_deref()).unwrap());
    loaded.finish_replay(NOW).unwrap();
    let mut outcome = Outcome::default();
    loaded.handle(NOW, &One, Event::Loaded, &mut outcome);
    let load = start.elapsed();
    assert!(outcome.records.is_empty(), "loading changes nothing");
    assert_eq!(loaded.snapshot(None, usize::MAX).records, records);

    let start = Instant::now();
    for name in &names {
        ask(&mut loaded, heartbeat(name, "00000000-1111-4222-8333-444455556666", MemberEpoch(2), &[0, 1, 2, 3]));
    }
    let beats = start.elapsed();
    println!(
        "{count} groups of {MEMBERS} members, {PARTITIONS} partitions and offsets: {} bytes of memory a group, {} bytes stored in {} records; \
         loaded in {load:?}, {:?} a group; a heartbeat takes {:?}",
        held_bytes / count,
        stored_bytes / count,
        records.len() / count,
        load / count as u32,
        beats / count as u32,
    );
}
