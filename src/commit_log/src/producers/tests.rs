use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::limits::PRODUCER_BATCHES;

const NEVER: i64 = i64::MIN;

fn produced(id: i64, epoch: i16, base_sequence: i32, length: u32) -> Produced {
    Produced { id: ProducerId(id), epoch: ProducerEpoch(epoch), base_sequence: Sequence(base_sequence), length }
}

fn out_of_order(found: i32, expected: i32) -> ProducerError {
    ProducerError::OutOfOrder { producer_id: ProducerId(7), found: Sequence(found), expected: Sequence(expected) }
}

fn fenced(found: i16, current: i16) -> ProducerError {
    ProducerError::Fenced { producer_id: ProducerId(7), found: ProducerEpoch(found), current: ProducerEpoch(current) }
}

fn unknown(producer_id: i64, epoch: i16, found: i32) -> ProducerError {
    ProducerError::Unknown { producer_id: ProducerId(producer_id), epoch: ProducerEpoch(epoch), found: Sequence(found) }
}

/// A partition's log of one-producer appends.
#[derive(Default)]
struct Log {
    producers: Producers,
    end: u64,
    now_ms: i64,
    max: usize,
}

impl Log {
    fn new() -> Self {
        Self { max: 100, ..Self::default() }
    }

    fn append(&mut self, batches: &[Produced]) -> Result<(u64, u64), ProducerError> {
        match self.producers.judge(batches.iter().copied().map(Some), NEVER)? {
            Verdict::Duplicate { base_offset, last_offset } => Ok((base_offset.0, last_offset.0)),
            Verdict::New(place) => {
                let base = self.end;
                let mut offsets = Vec::new();
                for batch in batches {
                    offsets.push((*batch, Offset(self.end)));
                    self.end += u64::from(batch.length);
                }
                self.producers.appended(place, offsets.into_iter(), self.now_ms, self.max);
                Ok((base, self.end - 1))
            }
        }
    }

    fn one(&mut self, id: i64, epoch: i16, base_sequence: i32, length: u32) -> Result<(u64, u64), ProducerError> {
        self.append(&[produced(id, epoch, base_sequence, length)])
    }
}

#[test]
fn a_batch_sent_again_has_the_offsets_that_it_got() {
    let mut log = Log::new();
    for sequence in 0..12 {
        assert_eq!(log.one(7, 0, 2 * sequence, 2), Ok((2 * sequence as u64, 2 * sequence as u64 + 1)));
    }
    for sequence in 12 - PRODUCER_BATCHES as i32..12 {
        assert_eq!(log.one(7, 0, 2 * sequence, 2), Ok((2 * sequence as u64, 2 * sequence as u64 + 1)));
    }
    assert_eq!(log.end, 24);
    let stale = out_of_order(0, 24);
    assert_eq!(log.one(7, 0, 0, 2), Err(stale), "too old to be remembered");
    let cut_otherwise = out_of_order(22, 24);
    assert_eq!(log.one(7, 0, 22, 1), Err(cut_otherwise), "of another length");
}

#[test]
fn gaps_older_epochs_and_strangers_are_refused() {
    let mut log = Log::new();
    assert_eq!(log.one(7, 1, 5, 1), Err(unknown(7, 1, 5)));
    assert_eq!(log.one(7, 1, 0, 1), Ok((0, 0)));
    assert_eq!(log.one(7, 1, 2, 1), Err(out_of_order(2, 1)));
    assert_eq!(log.one(7, 0, 1, 1), Err(fenced(0, 1)));
    assert_eq!(log.one(7, 2, 1, 1), Err(unknown(7, 2, 1)));
    assert_eq!(log.one(7, 2, 0, 1), Ok((1, 1)));
    assert_eq!(log.one(7, 1, 1, 1), Err(fenced(1, 2)));
    assert_eq!(log.one(8, 0, 0, 1), Ok((2, 2)), "another producer");
    let invalid = |epoch, base_sequence| ProducerError::Invalid {
        producer_id: ProducerId(9),
        epoch: ProducerEpoch(epoch),
        base_sequence: Sequence(base_sequence),
    };
    assert_eq!(log.one(9, -1, 0, 1), Err(invalid(-1, 0)));
    assert_eq!(log.one(9, 0, -1, 1), Err(invalid(0, -1)));
}

#[test]
fn sequences_go_on_at_0_behind_the_largest() {
    for (sequence, count) in [(0, 0), (i32::MAX - 1, 1), (i32::MAX, 1), (i32::MAX - 1, 5), (3, u32::MAX)] {
        assert_eq!(sequence_before(Sequence(sequence).plus(count), count), Sequence(sequence));
    }
    let place = Place(Err(0));
    let mut log = Log::new();
    log.producers.appended(place, [(produced(7, 0, i32::MAX - 3, 3), Offset(0))].into_iter(), 0, 1);
    log.end = 3;
    assert_eq!(log.one(7, 0, i32::MAX, 2), Ok((3, 4)));
    assert_eq!(log.one(7, 0, 1, 1), Ok((5, 5)));
    assert_eq!(log.one(7, 0, i32::MAX, 2), Ok((3, 4)), "known across the wrap");
    assert_eq!(log.one(7, 0, i32::MAX - 3, 3), Ok((0, 2)));
}

#[test]
fn several_batches_are_judged_as_one() {
    let mut log = Log::new();
    let set = [produced(7, 0, 0, 2), produced(7, 0, 2, 3)];
    assert_eq!(log.append(&set), Ok((0, 4)));
    assert_eq!(log.append(&set), Ok((0, 4)), "sent again");
    assert_eq!(log.append(&set[1..]), Ok((2, 4)));
    assert_eq!(log.append(&[set[1], produced(7, 0, 5, 1)]), Err(ProducerError::PartlyStored { producer_id: ProducerId(7) }));
    assert_eq!(log.one(8, 0, 0, 1), Ok((5, 5)));
    assert_eq!(log.one(7, 0, 5, 1), Ok((6, 6)));
    let apart = [set[1], produced(7, 0, 5, 1)];
    assert_eq!(
        log.append(&apart),
        Err(ProducerError::PartlyStored { producer_id: ProducerId(7) }),
        "another batch stands between them"
    );
    let gap = [produced(7, 0, 6, 1), produced(7, 0, 8, 1)];
    assert_eq!(log.append(&gap), Err(out_of_order(8, 7)));
    assert_eq!(log.append(&[produced(7, 0, 6, 1), produced(8, 0, 1, 1)]), Err(ProducerError::Mixed));
    let unnamed = [Some(produced(7, 0, 6, 1)), None];
    assert_eq!(log.producers.judge(unnamed.into_iter(), NEVER), Err(ProducerError::Mixed));
    let unnamed = [None, Some(produced(7, 0, 6, 1))];
    assert_eq!(log.producers.judge(unnamed.into_iter(), NEVER), Err(ProducerError::Mixed));
}

#[test]
fn whoever_appended_the_longest_ago_is_forgotten_first() {
    let mut log = Log { max: 3, ..Log::new() };
    for id in [30, 10, 20] {
        log.one(id, 0, 0, 1).unwrap();
    }
    log.one(30, 0, 1, 1).unwrap();
    log.one(5, 0, 0, 1).unwrap();
    let ids = |log: &Log| log.producers.known().iter().map(|known| known.id().0).collect::<Vec<_>>();
    assert_eq!(ids(&log), [5, 20, 30]);
    assert_eq!(log.one(10, 0, 1, 1), Err(unknown(10, 0, 1)));
    log.producers.keep_latest(1);
    assert_eq!(ids(&log), [5]);
}

#[test]
fn the_idle_are_forgotten_by_the_clock_of_the_broker() {
    let mut log = Log::new();
    log.one(1, 0, 0, 1).unwrap();
    log.now_ms = 1_000;
    log.one(2, 0, 0, 1).unwrap();
    let idle = [Some(produced(1, 0, 1, 1))];
    assert_eq!(log.producers.judge(idle.into_iter(), 1), Err(unknown(1, 0, 1)), "even before anybody has cleared up");
    assert!(log.producers.judge(idle.into_iter(), 0).is_ok());
    log.producers.forget_idle(1_000);
    assert_eq!(log.producers.known().iter().map(|known| known.id().0).collect::<Vec<_>>(), [2]);
    log.producers.forget_idle(1_001);
    assert!(log.producers.is_empty());
}

#[test]
fn a_cut_leaves_what_stood_before_it() {
    let mut log = Log::new();
    for sequence in 0..20 {
        log.one(7, 0, sequence, 1).unwrap();
    }
    let cut = |to: u64| {
        let mut producers = log.producers.clone();
        let forgotten = producers.truncate(Offset(to));
        (producers, forgotten)
    };
    let (producers, forgotten) = cut(15);
    assert!(forgotten.is_empty());
    let sequences: Vec<i32> = producers.known()[0].batches().map(|batch| batch.base_sequence.0).collect();
    assert_eq!(sequences, [10, 11, 12, 13, 14]);
    let mut log = Log { producers, end: 15, ..Log::new() };
    assert_eq!(log.one(7, 0, 14, 1), Ok((14, 14)));
    assert_eq!(log.one(7, 0, 15, 1), Ok((15, 15)));
    let (producers, forgotten) = { (log.producers.below(Offset(3)), log.producers.truncate(Offset(3))) };
    assert_eq!((producers.len(), forgotten), (0, vec![ProducerId(7)]), "nothing older is known");
}

/// Batches of one log, by where recovery finds them.
#[derive(Debug, Clone)]
enum Step {
    /// Through the write-ahead log, or straight into a segment.
    Append {
        id: i64,
        length: u32,
        direct: bool,
        new_epoch: bool,
    },
    /// Back by so many batches.
    Cut(usize),
    Checkpoint,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (0..3i64, 1..3u32, prop::bool::weighted(0.4), prop::bool::weighted(0.05))
            .prop_map(|(id, length, direct, new_epoch)| Step::Append { id, length, direct, new_epoch }),
        2 => (1..16usize).prop_map(Step::Cut),
        1 => Just(Step::Checkpoint),
    ];
    prop::collection::vec(step, 1..80)
}

/// A log in memory, and what a crash now leaves of it.
#[derive(Default)]
struct Live {
    log: Log,
    /// Every batch that stands: offset and whether it was written straight into a segment since the checkpoint.
    batches: Vec<(Produced, u64, bool)>,
    /// Of each producer: epoch and next sequence, as it counts itself.
    clients: BTreeMap<i64, (i16, i32)>,
    stored: Producers,
    /// Since the checkpoint: batches through the write-ahead log, and cuts.
    records: Vec<Result<(Produced, u64), u64>>,
    has_cut: bool,
}

impl Live {
    fn step(&mut self, step: &Step) {
        match *step {
            Step::Append { id, length, direct, new_epoch } => {
                let client = self.clients.entry(id).or_default();
                if new_epoch {
                    *client = (client.0 + 1, 0);
                }
                let mut batch = produced(id, client.0, client.1, length);
                let (base, _) = match self.log.append(&[batch]) {
                    Ok(offsets) => offsets,
                    Err(_) => {
                        assert!(self.has_cut, "only a cut makes a producer unknown");
                        *client = (client.0 + 1, 0);
                        batch = produced(id, client.0, 0, length);
                        self.log.append(&[batch]).unwrap()
                    }
                };
                client.1 = batch.next_sequence().0;
                self.batches.push((batch, base, direct));
                if !direct {
                    self.records.push(Ok((batch, base)));
                }
            }
            Step::Cut(count) => {
                let keep = self.batches.len().saturating_sub(count);
                let to = self.batches.get(keep).map_or(self.log.end, |batch| batch.1);
                self.batches.truncate(keep);
                self.log.end = to;
                self.log.producers.truncate(Offset(to));
                self.records.push(Err(to));
                self.has_cut = true;
                // A client goes on behind what it was told of: here, behind what is left.
                self.clients.clear();
                for (batch, _, _) in &self.batches {
                    self.clients.insert(batch.id.0, (batch.epoch.0, batch.next_sequence().0));
                }
            }
            Step::Checkpoint => {
                self.stored = self.log.producers.below(Offset(self.log.end));
                self.records.clear();
                self.batches.iter_mut().for_each(|batch| batch.2 = false);
            }
        }
    }

    fn recovered(&self) -> Producers {
        let mut recovering = Recovering::new(self.stored.clone());
        for record in &self.records {
            match record {
                Ok((batch, base)) => recovering.logged(*batch, Offset(*base)),
                Err(to) => recovering.truncate(Offset(*to)),
            }
        }
        // A scan sees everything of its segment, whichever way it came; here every other batch stands in one of two segments.
        for segment in 0..2 {
            let mut seen = Seen::default();
            let is_direct = self.batches.iter().filter(|batch| batch.2);
            is_direct.filter(|batch| batch.1 % 2 == segment).for_each(|batch| seen.add(batch.0, Offset(batch.1)));
            recovering.scanned(seen);
        }
        recovering.finish(Offset(self.log.end), 0)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Whatever way the batches took: what recovery comes to is what stands in the log. Of a producer that a cut has touched it may know less than
    /// memory did, or nothing: never something else.
    #[test]
    fn recovery_comes_to_the_newest_batches_of_the_log(steps in steps()) {
        let mut live = Live { log: Log::new(), ..Live::default() };
        for step in &steps {
            live.step(step);
            let recovered = live.recovered();
            if !live.has_cut {
                prop_assert_eq!(&recovered, &live.log.producers);
            }
            for producers in [&recovered, &live.log.producers] {
                for known in producers.known() {
                    let of_log: Vec<_> = live.batches.iter().filter(|batch| batch.0.id == known.id()).collect();
                    let newest = &of_log[of_log.len() - known.batches().len()..];
                    for (found, (due, base, _)) in known.batches().zip(newest) {
                        prop_assert_eq!((found.base_offset.0, found.base_sequence, found.length), (*base, due.base_sequence, due.length));
                        prop_assert_eq!(known.epoch(), due.epoch);
                    }
                }
            }
            // In memory, nothing is forgotten but by a cut of all that was remembered.
            for known in live.log.producers.known() {
                let again = recovered.known().iter().find(|again| again.id() == known.id());
                if let Some(again) = again {
                    prop_assert_eq!(again.next_sequence(), known.next_sequence());
                }
            }
        }
    }
}
