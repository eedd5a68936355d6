//! A member alone.

use std::collections::BTreeSet;
use std::time::Instant;

use wire::limits::{
    FAILURE_REASON_BYTES_MAX, FRAME_HEADER_BYTES, GROUP_ID_BYTES_MAX, MEMBER_ID_BYTES_MAX, REQUEST_BODY_BYTES_MAX,
};
use wire::{
    CommittedOffset, DueRecord, ErrorCode, FetchedOffset, LeaderEpoch, MemberEpoch, Offset, ParkedKey, PartitionIndex,
    PartitionKey, SettleOutcome, SettlePartition, SettlePartitionReply, SettleRequest, TimestampMs, TopicId,
};

use super::super::*;

const PARTITION: PartitionKey = PartitionKey::new(TopicId([1; 16]), PartitionIndex(0));

fn fetched(commit: u64) -> FetchedOffset {
    FetchedOffset {
        topic: PARTITION.topic,
        partition: PARTITION.partition,
        committed: Some(CommittedOffset { offset: Offset(commit), leader_epoch: None, metadata: None }),
        parked: Vec::new(),
        held: Vec::new(),
        stopped: false,
    }
}

/// A member with one partition, at offset 0.
struct Alone {
    core: RetryingCore<u64>,
    assignment: Assignment,
    now: Instant,
}

impl Alone {
    fn new() -> Alone {
        Alone::with(&fetched(0))
    }

    fn with(fetched: &FetchedOffset) -> Alone {
        let mut core = RetryingCore::new(100);
        let start = fetched.committed.as_ref().map_or(Offset(0), |committed| committed.offset);
        let assignment = core.assign(fetched, start);
        Alone { core, assignment, now: Instant::now() }
    }

    /// Records of these keys, from `first` on; an empty key stands for none.
    fn offer(&mut self, first: u64, keys: &[&str]) {
        for (offset, key) in (first..).zip(keys) {
            let key = (!key.is_empty()).then_some(key.as_bytes());
            self.core.offer(self.assignment, Offset(offset), LeaderEpoch(3), key, offset);
        }
    }

    /// Everything that can be handled now.
    fn take(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.core.next()).map(|delivery| delivery.record).collect()
    }

    fn done(&mut self, offset: u64) {
        assert!(self.core.done(self.assignment, Offset(offset)));
    }

    fn fail(&mut self, offset: u64) {
        assert!(self.core.fail(self.assignment, Offset(offset), "no"));
    }

    fn plan(&mut self) -> Option<(SettlePlan, SettlePartition)> {
        let plan = self.core.next_settle(self.now, true)?;
        let part = plan.partitions[0].clone();
        Some((plan, part))
    }

    /// Settles what there is; the coordinator takes all and keeps `parked` parked.
    fn settle(&mut self, parked: &[&str]) -> SettlePartition {
        let (plan, part) = self.plan().unwrap();
        let reply = taken(&part, parked);
        self.core.settled(self.now, &plan, &[reply]);
        part
    }

    fn due(&mut self, offset: u64, attempt: u32, key: &str) -> Vec<RetryFetch> {
        let plan = self.core.next_poll().unwrap();
        let record = DueRecord {
            topic: PARTITION.topic,
            partition: PARTITION.partition,
            offset: Offset(offset),
            attempt,
            key: Some(key.as_bytes().to_vec()),
        };
        self.core.polled(&plan, &[record])
    }
}

fn taken(part: &SettlePartition, parked: &[&str]) -> SettlePartitionReply {
    let keys = part.deferred.iter().map(|record| Some(&record.key));
    let keys = keys.chain(part.done.iter().map(|record| record.key.as_ref()));
    let keys = keys.chain(part.failed.iter().map(|record| record.key.as_ref()));
    let released = keys.flatten().filter(|key| !parked.iter().any(|parked| parked.as_bytes() == key.as_slice()));
    SettlePartitionReply {
        topic: part.topic,
        partition: part.partition,
        error: ErrorCode::None,
        message: None,
        outcomes: vec![SettleOutcome::Parked { due_ms: TimestampMs(1), attempts: 1 }; part.failed.len()],
        released: released.cloned().collect(),
        full_from: None,
        committed: part.commit.as_ref().map(|commit| commit.offset),
    }
}

fn deferred(part: &SettlePartition) -> Vec<u64> {
    part.deferred.iter().map(|record| record.offset.0).collect()
}

fn commit(part: &SettlePartition) -> Option<u64> {
    part.commit.as_ref().map(|commit| commit.offset.0)
}

#[test]
fn of_a_key_one_record_is_handled_at_a_time() {
    let mut alone = Alone::new();
    alone.offer(0, &["a", "b", "a", "", "", "a"]);
    assert_eq!(alone.take(), [0, 1, 3, 4]);
    alone.done(0);
    assert_eq!(alone.take(), [2]);
    alone.done(2);
    assert_eq!(alone.take(), [5]);
}

#[test]
fn the_commit_ends_at_the_first_record_in_hand() {
    let mut alone = Alone::new();
    alone.offer(0, &["a", "b", "c"]);
    alone.take();
    alone.done(1);
    assert!(alone.plan().is_none(), "nothing is handled from where the commit stands");
    alone.done(0);
    let part = alone.settle(&[]);
    assert_eq!(commit(&part), Some(2));
    assert_eq!(part.commit.unwrap().leader_epoch, Some(LeaderEpoch(3)));
    alone.done(2);
    alone.core.passed(alone.assignment, Offset(9));
    assert_eq!(alone.core.position(PARTITION), Some(Offset(9)));
    assert_eq!(commit(&alone.settle(&[])), Some(9));
}

#[test]
fn behind_a_failed_record_those_of_its_key_go_to_the_coordinator_and_the_commit_passes_them() {
    let mut alone = Alone::new();
    alone.offer(0, &["a", "b", "a"]);
    assert_eq!(alone.take(), [0, 1]);
    alone.fail(0);
    alone.done(1);
    let part = alone.settle(&["a"]);
    assert_eq!((part.failed.len(), deferred(&part), commit(&part)), (1, vec![2], Some(3)));
    alone.offer(3, &["a", "b"]);
    assert_eq!(alone.take(), [4]);
    assert_eq!(deferred(&alone.settle(&["a"])), [3]);
}

#[test]
fn a_retry_is_handled_and_its_key_flows_when_the_coordinator_says_so() {
    let mut alone = Alone::new();
    alone.offer(0, &["a"]);
    alone.take();
    alone.fail(0);
    alone.settle(&["a"]);
    let fetches = alone.due(0, 2, "a");
    assert_eq!(alone.due(0, 2, "a"), [], "it is in hand already");
    alone.core.fetched(fetches[0], 0);
    let delivery = alone.core.next().unwrap();
    assert_eq!((delivery.offset, delivery.attempt), (Offset(0), 2));
    alone.offer(1, &["a"]);
    assert!(alone.take().is_empty());
    alone.done(0);
    let part = alone.settle(&[]);
    assert_eq!((part.done.len(), deferred(&part)), (1, vec![1]));
    alone.offer(2, &["a"]);
    assert_eq!(alone.take(), [2]);
}

#[test]
fn records_that_were_not_yet_given_away_when_their_key_is_released_are_handled_here() {
    let mut alone = Alone::new();
    alone.offer(0, &["a"]);
    alone.take();
    alone.fail(0);
    let (plan, part) = alone.plan().unwrap();
    alone.offer(1, &["a", "a"]);
    assert!(alone.take().is_empty());
    let reply = SettlePartitionReply { outcomes: vec![SettleOutcome::DeadLettered], ..taken(&part, &[]) };
    alone.core.settled(alone.now, &plan, &[reply]);
    assert_eq!(alone.take(), [1]);
    alone.done(1);
    assert_eq!(alone.take(), [2]);
}

#[test]
fn where_there_is_no_room_the_partition_waits_and_retries_go_on() {
    let mut alone = Alone::new();
    alone.offer(0, &["a", "b", "a", "c"]);
    assert_eq!(alone.take(), [0, 1, 3]);
    alone.fail(0);
    alone.fail(1);
    let (plan, part) = alone.plan().unwrap();
    let outcomes = vec![SettleOutcome::Parked { due_ms: TimestampMs(1), attempts: 1 }, SettleOutcome::Full];
    let full = SettlePartitionReply { outcomes, full_from: Some(Offset(2)), committed: Some(Offset(1)), ..taken(&part, &["a"]) };
    alone.core.settled(alone.now, &plan, &[full]);
    assert!(!alone.core.wants(PARTITION));
    assert!(alone.plan().is_none());
    alone.done(3);
    alone.now = alone.core.next_settle_at().unwrap();
    let (plan, part) = alone.plan().unwrap();
    assert_eq!((part.failed.len(), deferred(&part), commit(&part)), (1, vec![2], Some(4)));
    alone.core.settled(alone.now, &plan, &[taken(&part, &["a", "b"])]);
    assert!(alone.core.wants(PARTITION));
}

/// 1 is given away in a request whose copy comes late: the answer to the first one says that there is no room for 1, and that its key flows.
#[test]
fn a_record_that_a_late_copy_gave_away_is_delivered_as_a_retry_though_there_is_no_room() {
    let mut alone = Alone::new();
    alone.offer(0, &["a", "a", "a", "b"]);
    assert_eq!(alone.take(), [0, 3]);
    alone.fail(0);
    alone.fail(3);
    let (plan, part) = alone.plan().unwrap();
    assert_eq!((part.failed.len(), deferred(&part)), (2, vec![1, 2]));
    let outcomes = vec![SettleOutcome::DeadLettered, SettleOutcome::Full];
    let full = SettlePartitionReply { outcomes, full_from: Some(Offset(1)), committed: Some(Offset(1)), ..taken(&part, &[]) };
    alone.core.settled(alone.now, &plan, &[full]);
    assert!(alone.take().is_empty(), "3 has no room: nothing of the log is delivered");

    assert_eq!(alone.due(1, 1, "a"), [], "the record is here");
    let delivery = alone.core.next().unwrap();
    assert_eq!((delivery.offset, delivery.attempt, delivery.record), (Offset(1), 1, 1));
    assert!(alone.take().is_empty(), "it is delivered once, and 2 waits behind it");
    alone.done(1);
    alone.now += FULL_PAUSE;
    let (plan, part) = alone.plan().unwrap();
    assert_eq!(part.done.iter().map(|record| record.offset).collect::<Vec<_>>(), [Offset(1)]);
    assert_eq!((part.failed.len(), deferred(&part)), (1, vec![2]));
    alone.core.settled(alone.now, &plan, &[taken(&part, &["a", "b"])]);
    assert!(alone.core.wants(PARTITION));
}

#[test]
fn a_request_without_an_answer_is_said_again_as_it_was() {
    let mut alone = Alone::new();
    alone.offer(0, &["a", "b"]);
    alone.take();
    alone.fail(0);
    let (plan, part) = alone.plan().unwrap();
    alone.done(1);
    alone.core.settle_lost(plan);
    let (plan, again) = alone.plan().unwrap();
    assert_eq!(again, part);
    alone.core.settle_lost(plan);
    alone.core.unassign(PARTITION);
    assert!(alone.plan().is_none());
}

#[test]
fn who_begins_with_a_partition_leaves_out_what_the_coordinator_has() {
    let mut alone = Alone::with(&FetchedOffset {
        parked: vec![ParkedKey { key: b"a".to_vec(), head: Offset(13) }],
        held: vec![Offset(11), Offset(13)],
        ..fetched(10)
    });
    alone.offer(9, &["b"]);
    alone.offer(10, &["a", "b", "b", "a", "a"]);
    assert_eq!(alone.take(), [12], "10 was handled before 13 failed");
    let part = alone.settle(&["a"]);
    assert_eq!((deferred(&part), commit(&part)), (vec![14], Some(12)));
}

#[test]
fn a_stopped_partition_delivers_nothing_until_a_record_of_it_is_due_again() {
    let mut alone = Alone::new();
    alone.offer(0, &["a", "b"]);
    alone.core.next();
    alone.fail(0);
    let (plan, part) = alone.plan().unwrap();
    let reply = SettlePartitionReply { outcomes: vec![SettleOutcome::Stopped], ..taken(&part, &["a"]) };
    alone.core.settled(alone.now, &plan, &[reply]);
    assert!(!alone.core.wants(PARTITION));
    assert!(alone.take().is_empty());
    let fetches = alone.due(0, 1, "a");
    alone.core.fetched(fetches[0], 0);
    assert_eq!(alone.take(), [0, 1]);
}

#[test]
fn a_retry_that_stopped_its_partition_comes_back_with_attempts_counted_anew() {
    let mut alone = Alone::new();
    alone.offer(0, &["a"]);
    alone.take();
    alone.fail(0);
    alone.settle(&["a"]);
    let fetches = alone.due(0, 2, "a");
    alone.core.fetched(fetches[0], 0);
    alone.take();
    alone.fail(0);
    let (plan, part) = alone.plan().unwrap();
    let reply = SettlePartitionReply { outcomes: vec![SettleOutcome::Stopped], ..taken(&part, &["a"]) };
    alone.core.settled(alone.now, &plan, &[reply]);
    let fetches = alone.due(0, 1, "a");
    alone.core.fetched(fetches[0], 0);
    assert_eq!(alone.take(), [0]);
}

#[test]
fn an_answer_that_was_overtaken_is_asked_for_again() {
    let mut alone = Alone::new();
    alone.offer(0, &["a"]);
    alone.take();
    alone.fail(0);
    let (plan, part) = alone.plan().unwrap();
    assert_eq!(alone.due(0, 2, "a"), [], "the answer that it is parked is not here yet");
    assert!(alone.core.next_poll().is_none());
    alone.core.settled(alone.now, &plan, &[taken(&part, &["a"])]);
    let plan = alone.core.next_poll().unwrap();
    assert_eq!((plan.poll, plan.received), (2, 0));
    assert!(alone.core.next_poll().is_none());
}

#[test]
fn a_retry_without_a_key_is_not_delivered_again_by_an_answer_that_was_overtaken() {
    let mut alone = Alone::new();
    alone.offer(0, &[""]);
    alone.take();
    alone.fail(0);
    alone.settle(&[]);
    let due =
        |attempt| DueRecord { topic: PARTITION.topic, partition: PARTITION.partition, offset: Offset(0), attempt, key: None };
    let plan = alone.core.next_poll().unwrap();
    let fetches = alone.core.polled(&plan, &[due(2)]);
    alone.core.fetched(fetches[0], 0);
    assert_eq!(alone.take(), [0]);
    alone.done(0);
    let overtaken = alone.core.next_poll().unwrap();
    alone.settle(&[]);
    assert_eq!(alone.core.polled(&overtaken, &[due(2)]), [], "it was handled");
    assert_eq!(alone.core.next_poll().unwrap().received, 1, "what else that answer brought is given again");
}

/// What a commit waits for, and what the program has said by then.
#[test]
fn a_commit_is_told_when_the_coordinator_knows_what_failed_and_what_was_handled_again() {
    let mut alone = Alone::new();
    let mut nothing = alone.core.mark();
    assert_eq!(alone.core.progress(&mut nothing), Progress::Told);
    alone.offer(0, &["a", "b", "c"]);
    alone.take();
    alone.fail(0);
    alone.done(1);
    let mut failed = alone.core.mark();
    assert_eq!(
        alone.core.progress(&mut failed),
        Progress::Open,
        "the commit stands where the failed record is, and that is not said"
    );
    let (plan, part) = alone.plan().unwrap();
    assert_eq!(alone.core.progress(&mut failed), Progress::Open, "said is not answered");
    alone.core.settled(alone.now, &plan, &[taken(&part, &["a"])]);
    assert_eq!(alone.core.progress(&mut failed), Progress::Told, "2 is in hand: nobody waits for it");

    let fetches = alone.due(0, 2, "a");
    alone.core.fetched(fetches[0], 0);
    alone.take();
    alone.done(0);
    let mut retried = alone.core.mark();
    assert_eq!(alone.core.progress(&mut retried), Progress::Open, "a handled retry moves no commit, and is to be told");
    alone.settle(&[]);
    assert_eq!(alone.core.progress(&mut retried), Progress::Told);
    alone.core.unassign(PARTITION);
    assert_eq!(alone.core.progress(&mut retried), Progress::Told, "what is told cannot be lost");
}

#[test]
fn a_commit_is_lost_with_its_partition_and_refused_where_there_is_no_room() {
    let mut alone = Alone::new();
    alone.offer(0, &["a"]);
    alone.take();
    alone.fail(0);
    let mut mark = alone.core.mark();
    let (plan, part) = alone.plan().unwrap();
    let full = SettlePartitionReply { outcomes: vec![SettleOutcome::Full], committed: Some(Offset(0)), ..taken(&part, &["a"]) };
    alone.core.settled(alone.now, &plan, &[full]);
    assert_eq!(alone.core.progress(&mut mark), Progress::NoRoom);
    alone.now = alone.core.next_settle_at().unwrap();
    let (plan, _) = alone.plan().unwrap();
    assert_eq!(alone.core.progress(&mut mark), Progress::Open, "it is asked again");
    alone.core.settle_lost(plan);
    alone.core.unassign(PARTITION);
    assert_eq!(alone.core.progress(&mut mark), Progress::Lost);
}

#[test]
fn a_partition_that_is_given_up_ends_with_what_is_in_hand() {
    let mut alone = Alone::new();
    alone.offer(0, &["a", "b", "a"]);
    assert_eq!(alone.core.next().unwrap().offset, Offset(0));
    alone.core.stop(PARTITION);
    assert!(alone.take().is_empty());
    assert!(!alone.core.wants(PARTITION));
    assert!(!alone.core.is_settled(PARTITION));
    alone.done(0);
    assert!(!alone.core.is_settled(PARTITION));
    assert_eq!(commit(&alone.settle(&[])), Some(1));
    assert!(alone.core.is_settled(PARTITION));
    assert_eq!(alone.core.committed(PARTITION), Some(Offset(1)));
    assert_eq!(alone.core.next_poll().unwrap().partitions().count(), 0);
}

#[test]
fn a_partition_whose_topic_is_deleted_is_given_up_though_nothing_of_it_can_be_committed() {
    let mut alone = Alone::new();
    alone.offer(0, &["a", "b"]);
    alone.take();
    alone.done(0);
    let (plan, part) = alone.plan().unwrap();
    let unknown = SettlePartitionReply { error: ErrorCode::UnknownTopicOrPartition, committed: None, ..taken(&part, &[]) };
    alone.core.settled(alone.now, &plan, &[unknown]);
    assert!(!alone.core.is_settled(PARTITION), "it may be about to be made");
    alone.core.stop(PARTITION);
    assert!(alone.core.is_settled(PARTITION));
}

#[test]
fn what_was_handled_here_and_parked_by_a_late_copy_is_not_handled_again() {
    let mut alone = Alone::new();
    alone.offer(0, &["a"]);
    alone.take();
    alone.done(0);
    assert_eq!(alone.due(0, 1, "a"), []);
    assert_eq!(alone.settle(&[]).done.len(), 1);
}

#[test]
fn what_cannot_be_read_any_more_counts_as_failed() {
    let mut alone = Alone::new();
    alone.offer(0, &["a"]);
    alone.take();
    alone.fail(0);
    alone.settle(&["a"]);
    let fetches = alone.due(0, 2, "a");
    alone.core.fetch_failed(fetches[0], "deleted by retention");
    let part = alone.settle(&["a"]);
    assert_eq!((part.failed[0].attempt, part.failed[0].reason.as_str()), (2, "deleted by retention"));
}

#[test]
fn a_long_reason_is_shortened_at_a_character() {
    let mut alone = Alone::new();
    alone.offer(0, &["a"]);
    alone.take();
    assert!(alone.core.fail(alone.assignment, Offset(0), &"\u{e9}".repeat(10_000)));
    assert_eq!(alone.settle(&["a"]).validate(), Ok(()));
}

#[test]
fn a_request_is_bounded_and_the_rest_follows() {
    let mut alone = Alone::new();
    alone.core.in_flight_max = 10_000;
    alone.offer(0, &["a"; 3000]);
    alone.take();
    alone.fail(0);
    let part = alone.settle(&["a"]);
    assert_eq!((deferred(&part).len(), commit(&part)), (SETTLED_PER_REQUEST_MAX, Some(2049)));
    let part = alone.settle(&["a"]);
    assert_eq!((deferred(&part).len(), commit(&part)), (951, Some(3000)));
}

#[test]
fn what_was_begun_under_an_assignment_ends_with_it() {
    let mut alone = Alone::new();
    alone.offer(0, &["a"]);
    alone.take();
    let before = alone.assignment;
    alone.assignment = alone.core.assign(&fetched(0), Offset(0));
    assert!(!alone.core.done(before, Offset(0)));
    assert!(!alone.core.fail(before, Offset(0), "no"));
    alone.offer(0, &["a"]);
    assert_eq!(alone.take(), [0]);
    alone.core.unassign(PARTITION);
    assert_eq!(alone.core.position(PARTITION), None);
}

fn crowd(count: u32) -> (RetryingCore<u64>, Vec<Assignment>) {
    let mut core = RetryingCore::new(100);
    let partitions = (0..count).map(|number| FetchedOffset { partition: PartitionIndex(number), ..fetched(0) });
    let assignments = partitions.map(|fetched| core.assign(&fetched, Offset(0))).collect();
    (core, assignments)
}

#[test]
fn more_partitions_than_fit_a_poll_are_named_in_turn() {
    let count = PARTITIONS_PER_TAKE_MAX + 7000;
    let (mut core, assignments) = crowd(u32::try_from(count).unwrap());
    core.stop(assignments[3].partition);
    for _ in 0..2 {
        let mut named = BTreeSet::new();
        for expected in [PARTITIONS_PER_TAKE_MAX, 6999] {
            let plan = core.next_poll().unwrap();
            assert!(plan.partitions().count() <= PARTITIONS_PER_TAKE_MAX);
            let before = named.len();
            named.extend(plan.partitions());
            assert!(named.len() - before >= expected, "those come first that were not named");
            assert_eq!(core.polled(&plan, &[]), []);
        }
        assert_eq!(named.len(), count - 1);
        core.poll_from = PARTITION_FIRST;
    }
}

/// A failed record each with the longest key and reason, eight that wait behind it, and commits in all partitions.
#[test]
fn the_largest_settle_request_fits_and_what_does_not_follows() {
    let (mut core, assignments) = crowd(3000);
    let now = Instant::now();
    let reason = "r".repeat(FAILURE_REASON_BYTES_MAX);
    for (number, assignment) in assignments.iter().enumerate() {
        let key = format!("{number:0256}");
        for offset in 0..9 {
            core.offer(*assignment, Offset(offset), LeaderEpoch(3), Some(key.as_bytes()), offset);
        }
        core.next().unwrap();
        assert!(core.fail(*assignment, Offset(0), &reason));
    }
    let (mut largest, mut committed, mut failed) = (0, BTreeSet::new(), 0);
    while let Some(plan) = core.next_settle(now, true) {
        assert!(plan.partitions.len() <= PARTITIONS_PER_SETTLE_MAX);
        let request = SettleRequest {
            group: "g".repeat(GROUP_ID_BYTES_MAX),
            member_id: "m".repeat(MEMBER_ID_BYTES_MAX),
            member_epoch: MemberEpoch(1),
            partitions: plan.partitions.clone(),
        };
        largest = largest.max(wire::encode_request(1, &request, 0).len() - FRAME_HEADER_BYTES);
        failed += plan.partitions.iter().map(|part| part.failed.len()).sum::<usize>();
        for part in plan.partitions.iter().filter(|part| commit(part) == Some(9)) {
            committed.insert(part.partition);
        }
        let replies: Vec<_> =
            plan.partitions.iter().map(|part| SettlePartitionReply { released: Vec::new(), ..taken(part, &[]) }).collect();
        core.settled(now, &plan, &replies);
    }
    assert!(largest <= REQUEST_BODY_BYTES_MAX as usize, "{largest}");
    assert_eq!((failed, committed.len()), (3000, 3000));
}

#[test]
fn commits_that_do_not_fit_a_request_follow_with_the_next_ones() {
    let (mut core, assignments) = crowd(2500);
    for assignment in &assignments {
        core.passed(*assignment, Offset(7));
    }
    let mut committed = BTreeSet::new();
    // It is time to commit once.
    for (is_time, count) in [(true, PARTITIONS_PER_SETTLE_MAX), (false, 2 * PARTITIONS_PER_SETTLE_MAX), (false, 2500)] {
        let plan = core.next_settle(Instant::now(), is_time).unwrap();
        committed.extend(plan.partitions.iter().map(|part| part.partition));
        assert_eq!(committed.len(), count);
        let replies: Vec<_> = plan.partitions.iter().map(|part| taken(part, &[])).collect();
        core.settled(Instant::now(), &plan, &replies);
        // Those that were told already have more to tell, and come after the others.
        assignments.iter().for_each(|assignment| core.passed(*assignment, Offset(8)));
    }
}
