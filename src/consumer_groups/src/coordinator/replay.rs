//! The state, read back and written anew.

use std::collections::BTreeSet;
use std::ops::Bound;

use wire::TopicId;

use super::Coordinator;
use crate::group::Group;
use crate::ids::GroupId;
use crate::now::Now;
use crate::outcome::Outcome;
use crate::state::{StateError, StateKey, StatePart, StateRecord, decode};
use crate::topics::Topics;

/// A part of a snapshot, and where it goes on.
#[derive(Debug, Default)]
pub struct SnapshotSlice {
    /// Records to append.
    pub records: Vec<StateRecord>,
    /// Give this to the next call; `None`: the snapshot is complete.
    pub next: Option<SnapshotPosition>,
}

/// Where a snapshot goes on. It stays right whatever happens between two slices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPosition(StateKey);

impl Coordinator {
    /// Puts back one record of the internal topic, in the order of its log.
    ///
    /// # Errors
    /// The record is damaged, or a later version wrote it. The coordinator must not be used then.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), StateError> {
        let (key, value) = decode(key, value)?;
        let id = GroupId::from(key.group.as_str());
        if key.part == StatePart::Group && value.is_none() {
            self.groups.remove(&id);
            return Ok(());
        }
        match (self.groups.get_mut(&id), &value) {
            (Some(group), _) => group.restore(key.part, value),
            // A tombstone of a group whose own was before it.
            (None, None) => Ok(()),
            (None, Some(_)) => {
                let limits = self.options.retry;
                self.groups.entry(id.clone()).or_insert_with(|| Group::new(id, limits)).restore(key.part, value)
            }
        }
    }

    /// The last record has been replayed.
    ///
    /// # Errors
    /// What was replayed does not fit together. The coordinator must not be used then.
    pub fn finish_replay(&mut self, now: Now) -> Result<(), StateError> {
        for (id, group) in &mut self.groups {
            let what = group.contradiction();
            what.map_or(Ok(()), |what| Err(StateError::Contradiction { group: id.clone(), what }))?;
            group.retries.restored(now, &mut group.retried)?;
        }
        Ok(())
    }

    /// The records of everything that is known, in slices of about `bytes_max`: they replace all records that were appended before the
    /// first slice. Between two slices events are handled as ever, and their records appended.
    pub fn snapshot(&self, from: Option<&SnapshotPosition>, bytes_max: usize) -> SnapshotSlice {
        let mut slice = SnapshotSlice::default();
        let mut bytes = 0;
        let start = from.map_or(Bound::Unbounded, |from| Bound::Included(from.0.group.as_str()));
        for (id, group) in self.groups.range::<str, _>((start, Bound::Unbounded)) {
            let first = from.filter(|from| from.0.group == id.as_str()).map(|from| &from.0.part);
            for part in group.parts_from(first) {
                if bytes >= bytes_max {
                    slice.next = Some(SnapshotPosition(StateKey { group: id.as_str().to_owned(), part }));
                    return slice;
                }
                let record = group.record(id, part);
                bytes += record.bytes();
                slice.records.push(record);
            }
        }
        slice
    }

    pub(super) fn loaded(&mut self, now: Now, topics: &dyn Topics, outcome: &mut Outcome) {
        self.loaded_at = now.wall;
        let ids: Vec<GroupId> = self.groups.keys().cloned().collect();
        for id in ids {
            let group = self.groups.get_mut(&id).expect("just listed");
            group.membership.start_sessions(now.steady_ms);
            let known = group.partitions().into_iter().map(|partition| partition.topic);
            let gone: BTreeSet<TopicId> = known.filter(|&topic| topics.by_id(topic).is_none()).collect();
            gone.into_iter().for_each(|topic| _ = group.drop_topic(topic));
            group.membership.refresh(topics);
            self.finish(now, topics, &id, outcome);
            self.set_timer(now, &id);
        }
    }
}
