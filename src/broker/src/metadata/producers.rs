//! Identities of producers: a pure part of the catalog.
//!
//! ```text
//!  no name   the next id of a block that the journal has reserved: one sync for many producers. A crash wastes the rest of the block
//!  a name    the id that it has, with the next epoch: journalled, and known to every shard before it is answered
//!
//!  epochs of one id   0 … 32766 │ 32767: nobody has it. An id that has used up its epochs is fenced by it, and the name gets another id
//! ```

use hashbrown::{HashMap, HashSet};
use std::sync::Arc;
use wire::{ErrorCode, InitProducerRequest, ProducerEpoch, ProducerId, ProducerIdentity};

use super::catalog::{Change, Refusal};

/// Ids that one journal record reserves.
const IDS_PER_BLOCK: i64 = 1_000;

/// Named producers: a few MiB here and 2 MiB on each shard. More belong into names of their own only if each outlives its process.
pub(crate) const NAMED_PRODUCERS_MAX: usize = 100_000;

/// When there are as many as there may be, one of which no instance has begun for that long is forgotten. A name that is used again then has another
/// id, and an instance of the old one is not fenced.
const UNUSED_MS: i64 = 90 * 24 * 3600 * 1000;

/// The last epoch that an instance can have.
const EPOCH_LAST: ProducerEpoch = ProducerEpoch(i16::MAX - 1);

/// Fences every instance of an id.
const EPOCH_FENCE: ProducerEpoch = ProducerEpoch(i16::MAX);

/// Ids of one name whose epochs are used up, and that are still fenced: each has lasted for 32,767 instances.
const RETIRED_IDS_MAX: usize = 8;

/// A named producer. Never changed in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedProducer {
    pub(crate) name: String,
    pub(crate) id: ProducerId,
    /// Of its latest instance.
    pub(crate) epoch: ProducerEpoch,
    /// The instance that had the epoch before has asked for this one.
    pub(crate) is_continued: bool,
    /// Ids that it had before.
    pub(crate) retired: Vec<ProducerId>,
    /// When the latest instance began, in milliseconds since 1970.
    pub(crate) begun_ms: i64,
}

impl NamedProducer {
    /// What shards must know: the least epoch that may append, of each of its ids.
    pub(crate) fn fences(&self) -> impl Iterator<Item = (ProducerId, ProducerEpoch)> + '_ {
        self.retired.iter().map(|id| (*id, EPOCH_FENCE)).chain([(self.id, self.epoch)])
    }

    fn identity(&self) -> ProducerIdentity {
        ProducerIdentity { id: self.id, epoch: self.epoch }
    }
}

/// Everything known about producers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Producers {
    /// Ids below are reserved, durably.
    reserved_end: i64,
    /// The next that is given; not stored.
    next: i64,
    named: HashMap<String, Arc<NamedProducer>>,
    /// The ids of those, and the ones they had before.
    ids: HashSet<ProducerId>,
}

impl Producers {
    /// What was stored.
    pub(super) fn restored(reserved_end: i64, named: impl IntoIterator<Item = NamedProducer>) -> Self {
        let mut producers = Producers { reserved_end, next: reserved_end, ..Producers::default() };
        named.into_iter().for_each(|producer| producers.put(&Arc::new(producer)));
        producers
    }

    /// Ids below were reserved.
    pub(super) fn reserved_end(&self) -> i64 {
        self.reserved_end
    }

    /// The named producers, in no order.
    pub(crate) fn named(&self) -> impl Iterator<Item = &Arc<NamedProducer>> {
        self.named.values()
    }

    /// The identity that answers `request`, with the changes that must be durable and known before; or why there is none. Takes an id from the block at
    /// once; the changes take effect when they are applied.
    pub(super) fn init(
        &mut self,
        request: &InitProducerRequest,
        now_ms: i64,
    ) -> Result<(ProducerIdentity, Vec<Change>), Refusal> {
        request.validate().map_err(|error| Refusal::new(error.code, error.to_string()))?;
        match &request.name {
            None => Ok(self.unnamed(request.current)),
            Some(name) => self.instance(name, request.current, now_ms),
        }
    }

    fn unnamed(&mut self, current: Option<ProducerIdentity>) -> (ProducerIdentity, Vec<Change>) {
        // Nobody else has an id without a name, so that its next epoch needs no record.
        let next_epoch = current.filter(|current| {
            let is_given = (0..self.reserved_end).contains(&current.id.0) && (0..EPOCH_LAST.0).contains(&current.epoch.0);
            is_given && !self.ids.contains(&current.id)
        });
        if let Some(current) = next_epoch {
            return (ProducerIdentity { id: current.id, epoch: ProducerEpoch(current.epoch.0 + 1) }, Vec::new());
        }
        let (id, changes) = self.next_id();
        (ProducerIdentity { id, epoch: ProducerEpoch(0) }, changes)
    }

    fn instance(
        &mut self,
        name: &str,
        current: Option<ProducerIdentity>,
        now_ms: i64,
    ) -> Result<(ProducerIdentity, Vec<Change>), Refusal> {
        let Some(known) = self.named.get(name).cloned() else { return self.first_instance(name, now_ms) };
        if let Some(current) = current.filter(|current| *current != known.identity()) {
            let is_answered_again =
                known.is_continued && current.id == known.id && current.epoch.0.checked_add(1) == Some(known.epoch.0);
            if is_answered_again {
                return Ok((known.identity(), Vec::new()));
            }
            let message = format!("another instance of producer {name} has begun: id {}, epoch {}", known.id, known.epoch);
            return Err(Refusal::new(ErrorCode::ProducerFenced, message));
        }
        let is_continued = current.is_some();
        let mut next = NamedProducer { is_continued, begun_ms: now_ms, ..NamedProducer::clone(&known) };
        let mut changes = Vec::new();
        if known.epoch < EPOCH_LAST {
            next.epoch = ProducerEpoch(known.epoch.0 + 1);
        } else {
            (next.id, changes) = self.next_id();
            next.epoch = ProducerEpoch(0);
            next.retired.push(known.id);
            next.retired.drain(..next.retired.len().saturating_sub(RETIRED_IDS_MAX));
        }
        let identity = next.identity();
        changes.push(Change::Producer(Arc::new(next)));
        Ok((identity, changes))
    }

    fn first_instance(&mut self, name: &str, now_ms: i64) -> Result<(ProducerIdentity, Vec<Change>), Refusal> {
        let mut forgotten = None;
        if self.named.len() >= NAMED_PRODUCERS_MAX {
            let oldest = self.named.values().min_by_key(|producer| (producer.begun_ms, producer.id));
            let unused = oldest.filter(|oldest| oldest.begun_ms < now_ms.saturating_sub(UNUSED_MS));
            let Some(unused) = unused else {
                let message = format!("there are {NAMED_PRODUCERS_MAX} named producers, and none of them is unused");
                return Err(Refusal::new(ErrorCode::TooManyProducers, message));
            };
            forgotten = Some(Change::ProducerForgotten(Arc::clone(unused)));
        }
        let (id, mut changes) = self.next_id();
        changes.extend(forgotten);
        let epoch = ProducerEpoch(0);
        let first =
            NamedProducer { name: name.to_owned(), id, epoch, is_continued: false, retired: Vec::new(), begun_ms: now_ms };
        changes.push(Change::Producer(Arc::new(first)));
        Ok((ProducerIdentity { id, epoch }, changes))
    }

    fn next_id(&mut self) -> (ProducerId, Vec<Change>) {
        let id = self.next;
        self.next += 1;
        let changes = if id < self.reserved_end { Vec::new() } else { vec![Change::ProducerIds { end: id + IDS_PER_BLOCK }] };
        (ProducerId(id), changes)
    }

    pub(super) fn reserve(&mut self, end: i64) {
        assert!(end > self.reserved_end, "ids are reserved once");
        // Nothing was given of a block that replay comes across: what was, is below it.
        self.next = self.next.max(self.reserved_end);
        self.reserved_end = end;
    }

    pub(super) fn put(&mut self, producer: &Arc<NamedProducer>) {
        self.ids.extend(producer.fences().map(|(id, _)| id));
        self.named.insert(producer.name.clone(), Arc::clone(producer));
    }

    pub(super) fn forget(&mut self, producer: &NamedProducer) {
        self.named.remove(&producer.name);
    }

    /// Replay is over: what the last block may have given is not given again.
    pub(super) fn opened(&mut self) {
        self.next = self.reserved_end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(
        producers: &mut Producers,
        name: Option<&str>,
        current: Option<ProducerIdentity>,
    ) -> Result<ProducerIdentity, ErrorCode> {
        ask_at(producers, name, current, 1)
    }

    fn ask_at(
        producers: &mut Producers,
        name: Option<&str>,
        current: Option<ProducerIdentity>,
        now_ms: i64,
    ) -> Result<ProducerIdentity, ErrorCode> {
        let request = InitProducerRequest { name: name.map(str::to_owned), current };
        let (identity, changes) = producers.init(&request, now_ms).map_err(|refusal| refusal.code)?;
        for change in changes {
            match change {
                Change::ProducerIds { end } => producers.reserve(end),
                Change::Producer(producer) => producers.put(&producer),
                Change::ProducerForgotten(producer) => producers.forget(&producer),
                other => panic!("{other:?}"),
            }
        }
        Ok(identity)
    }

    fn identity(id: i64, epoch: i16) -> ProducerIdentity {
        ProducerIdentity { id: ProducerId(id), epoch: ProducerEpoch(epoch) }
    }

    #[test]
    fn ids_come_from_reserved_blocks_and_are_given_once() {
        let mut producers = Producers::default();
        for id in 0..IDS_PER_BLOCK + 5 {
            let request = InitProducerRequest { name: None, current: None };
            let (given, changes) = producers.init(&request, 0).unwrap();
            assert_eq!(given, identity(id, 0));
            assert_eq!(changes.len(), usize::from(id % IDS_PER_BLOCK == 0), "{id}");
            changes.iter().for_each(|change| match change {
                Change::ProducerIds { end } => producers.reserve(*end),
                other => panic!("{other:?}"),
            });
        }
        let end = producers.reserved_end();
        let mut reopened = Producers::restored(end, []);
        assert_eq!(ask(&mut reopened, None, None), Ok(identity(end, 0)), "the rest of the block is wasted");
        let mut replayed = Producers::default();
        replayed.reserve(end);
        replayed.opened();
        assert_eq!(ask(&mut replayed, None, None), Ok(identity(end, 0)));
    }

    #[test]
    fn one_without_a_name_gets_its_next_epoch() {
        let mut producers = Producers::default();
        let first = ask(&mut producers, None, None).unwrap();
        assert_eq!(ask(&mut producers, None, Some(first)), Ok(identity(0, 1)));
        assert_eq!(ask(&mut producers, None, Some(identity(0, EPOCH_LAST.0))), Ok(identity(1, 0)), "the epochs are used up");
        assert_eq!(ask(&mut producers, None, Some(identity(5_000, 0))), Ok(identity(2, 0)), "never given");
        let named = ask(&mut producers, Some("a"), None).unwrap();
        assert_eq!(ask(&mut producers, None, Some(named)), Ok(identity(4, 0)), "it belongs to a name");
    }

    #[test]
    fn a_name_keeps_its_id_and_each_instance_fences_the_one_before() {
        let mut producers = Producers::default();
        let first = ask(&mut producers, Some("a"), None).unwrap();
        let second = ask(&mut producers, Some("a"), None).unwrap();
        assert_eq!((first, second), (identity(0, 0), identity(0, 1)));
        assert_eq!(ask(&mut producers, Some("b"), None), Ok(identity(1, 0)));
        assert_eq!(ask(&mut producers, Some("a"), Some(first)), Err(ErrorCode::ProducerFenced));
        let third = ask(&mut producers, Some("a"), Some(second)).unwrap();
        assert_eq!(third, identity(0, 2));
        assert_eq!(ask(&mut producers, Some("a"), Some(second)), Ok(third), "the answer was lost");
        assert_eq!(ask(&mut producers, Some("a"), None), Ok(identity(0, 3)));
        assert_eq!(ask(&mut producers, Some("a"), Some(third)), Err(ErrorCode::ProducerFenced));
        assert_eq!(ask(&mut producers, Some(""), None), Err(ErrorCode::InvalidRequest));
    }

    #[test]
    fn used_up_epochs_give_another_id_and_the_old_one_stays_fenced() {
        let mut producers = Producers::default();
        let id = ask(&mut producers, Some("a"), None).unwrap().id;
        let last = NamedProducer { epoch: EPOCH_LAST, ..NamedProducer::clone(&producers.named["a"]) };
        producers.put(&Arc::new(last));
        let next = ask(&mut producers, Some("a"), None).unwrap();
        assert_eq!((next.id != id, next.epoch), (true, ProducerEpoch(0)));
        let fences: Vec<_> = producers.named["a"].fences().collect();
        assert_eq!(fences, [(id, EPOCH_FENCE), (next.id, ProducerEpoch(0))]);
    }

    #[test]
    fn at_the_bound_only_the_unused_are_forgotten() {
        let named = (0..NAMED_PRODUCERS_MAX).map(|number| NamedProducer {
            name: format!("p{number}"),
            id: ProducerId(number as i64),
            epoch: ProducerEpoch(0),
            is_continued: false,
            retired: Vec::new(),
            begun_ms: 1_000 + number as i64,
        });
        let mut producers = Producers::restored(NAMED_PRODUCERS_MAX as i64, named);
        assert_eq!(ask_at(&mut producers, Some("new"), None, 1_000 + UNUSED_MS), Err(ErrorCode::TooManyProducers));
        assert!(ask_at(&mut producers, Some("new"), None, 1_001 + UNUSED_MS).is_ok());
        assert!(!producers.named.contains_key("p0"));
        assert_eq!(producers.named.len(), NAMED_PRODUCERS_MAX);
    }
}
