//! What one shard knows of the topics: a copy of the catalog, changed only by what the metadata thread broadcasts.
//!
//! Every shard has the same changes in the same order, so that all agree who owns a partition without asking.

use crate::{
    config::{PlacementRules, owner},
    metadata::{Change, Topic},
};
use hashbrown::HashMap;
use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    rc::Rc,
    sync::Arc,
};
use wire::{PartitionIndex, TopicId};

/// Changes kept for clients that ask what is new. One that is further behind gets everything.
const RECENT_CHANGES_MAX: usize = 4096;

/// A topic with the shards its partitions are spread over.
#[derive(Clone, Debug)]
pub(crate) struct TopicEntry {
    pub(crate) topic: Arc<Topic>,
    shards: Rc<[u16]>,
}

impl TopicEntry {
    /// The shard that owns `partition`; `None` when the topic has no such partition.
    pub(crate) fn owner(&self, partition: PartitionIndex) -> Option<u16> {
        (partition.0 < self.topic.config.partitions).then(|| owner(&self.shards, self.topic.id, partition))
    }

    /// The partitions of `among` that `shard` owns.
    pub(crate) fn owned_by(&self, shard: u16, among: std::ops::Range<u32>) -> impl Iterator<Item = PartitionIndex> + '_ {
        among.map(PartitionIndex).filter(move |partition| self.owner(*partition) == Some(shard))
    }
}

/// The topics by id and by name.
#[derive(Debug)]
pub(crate) struct Topics {
    rules: PlacementRules,
    /// One list of shards for each distinct set, so that a topic costs a pointer.
    shard_lists: Vec<Rc<[u16]>>,
    version: u64,
    by_id: HashMap<TopicId, TopicEntry>,
    by_name: BTreeMap<String, TopicId>,
    recent: VecDeque<(u64, Recent)>,
    partitions: u64,
}

#[derive(Clone, Debug)]
enum Recent {
    Put(TopicId),
    Deleted(TopicId),
}

/// What is new since a version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Since {
    /// These topics changed, and these names are gone.
    Changes {
        /// Ids of topics that exist.
        put: Vec<TopicId>,
        /// Topics that are gone.
        deleted: Vec<TopicId>,
    },
    /// Too long ago: everything must be read again.
    Unknown,
}

impl Topics {
    /// A copy that starts with `topics` as of `version`.
    pub(crate) fn new(rules: PlacementRules, version: u64, topics: &[Arc<Topic>]) -> Self {
        let mut copy = Topics {
            rules,
            shard_lists: Vec::new(),
            version,
            by_id: HashMap::with_capacity(topics.len()),
            by_name: BTreeMap::new(),
            recent: VecDeque::new(),
            partitions: 0,
        };
        for topic in topics {
            copy.put(topic);
        }
        copy
    }

    /// Applies one change; gives the topic as it was before.
    pub(crate) fn apply(&mut self, version: u64, change: &Change) -> Option<TopicEntry> {
        assert_eq!(version, self.version + 1, "metadata changes come in order, each once");
        self.version = version;
        match change {
            Change::Put(topic) => {
                self.remember(version, Recent::Put(topic.id));
                self.put(topic)
            }
            Change::Deleting(topic) => {
                self.remember(version, Recent::Deleted(topic.id));
                let before = self.by_id.remove(&topic.id)?;
                self.by_name.remove(&before.topic.name);
                self.partitions -= u64::from(before.topic.config.partitions);
                Some(before)
            }
            Change::Purged(_) => None,
        }
    }

    fn remember(&mut self, version: u64, recent: Recent) {
        if self.recent.len() == RECENT_CHANGES_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((version, recent));
    }

    fn put(&mut self, topic: &Arc<Topic>) -> Option<TopicEntry> {
        let wanted = self.rules.shards_of(&topic.name);
        let shards = match self.shard_lists.iter().find(|list| ***list == *wanted) {
            Some(list) => Rc::clone(list),
            None => {
                let list: Rc<[u16]> = wanted.into();
                self.shard_lists.push(Rc::clone(&list));
                list
            }
        };
        self.partitions += u64::from(topic.config.partitions);
        let before = self.by_id.insert(topic.id, TopicEntry { topic: Arc::clone(topic), shards });
        match &before {
            Some(before) => self.partitions -= u64::from(before.topic.config.partitions),
            None => drop(self.by_name.insert(topic.name.clone(), topic.id)),
        }
        before
    }

    /// The version of the last change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The topic with this id.
    pub(crate) fn get(&self, id: TopicId) -> Option<&TopicEntry> {
        self.by_id.get(&id)
    }

    /// Whether this is a topic of the broker's own.
    pub(crate) fn is_internal(&self, id: TopicId) -> bool {
        self.get(id).is_some_and(|entry| entry.topic.is_internal())
    }

    /// The topic of this name.
    pub(crate) fn named(&self, name: &str) -> Option<&TopicEntry> {
        self.by_id.get(self.by_name.get(name)?)
    }

    /// All topics in the order of their names, from the first behind `name` on.
    pub(crate) fn after(&self, name: Option<&str>) -> impl Iterator<Item = &TopicEntry> {
        let start = name.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_name.range::<str, _>((start, Bound::Unbounded)).map(|(_, id)| &self.by_id[id])
    }

    /// As [`Topics::after`], of the topics whose name begins with `prefix`.
    pub(crate) fn matching<'a>(&'a self, prefix: &'a str, name: Option<&'a str>) -> impl Iterator<Item = &'a TopicEntry> {
        let start = match name {
            Some(name) if name >= prefix => Bound::Excluded(name),
            Some(_) | None => Bound::Included(prefix),
        };
        let entries = self.by_name.range::<str, _>((start, Bound::Unbounded)).map(|(_, id)| &self.by_id[id]);
        entries.take_while(move |entry| entry.topic.name.starts_with(prefix))
    }

    /// How many topics there are.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// How many partitions they have together.
    pub(crate) fn partition_count(&self) -> u64 {
        self.partitions
    }

    /// What changed after `version`.
    pub(crate) fn since(&self, version: u64) -> Since {
        let oldest_known = self.recent.front().map_or(self.version, |(first, _)| first - 1);
        if version < oldest_known || version > self.version {
            return Since::Unknown;
        }
        let mut put = Vec::new();
        let mut deleted = Vec::new();
        for (_, recent) in self.recent.iter().filter(|(changed, _)| *changed > version) {
            match recent {
                Recent::Put(id) if !put.contains(id) && self.by_id.contains_key(id) => put.push(*id),
                Recent::Put(_) => {}
                Recent::Deleted(id) => deleted.push(*id),
            }
        }
        Since::Changes { put, deleted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::TopicConfig;

    fn topic(number: u8, name: &str, partitions: u32) -> Arc<Topic> {
        let config = TopicConfig { partitions, ..TopicConfig::default() };
        Arc::new(Topic { id: TopicId([number; 16]), name: name.to_owned(), config, created_ms: 0, version: 0 })
    }

    fn topics() -> Topics {
        Topics::new(PlacementRules::new(&[], 2).unwrap(), 10, &[topic(1, "b", 2), topic(2, "a", 1)])
    }

    #[test]
    fn changes_are_found_since_a_version() {
        let mut topics = topics();
        assert_eq!(topics.since(10), Since::Changes { put: vec![], deleted: vec![] });
        assert_eq!(topics.since(9), Since::Unknown);
        topics.apply(11, &Change::Put(topic(3, "c", 4)));
        topics.apply(12, &Change::Deleting(topic(2, "a", 1)));
        topics.apply(13, &Change::Purged(TopicId([2; 16])));
        assert_eq!(topics.since(10), Since::Changes { put: vec![TopicId([3; 16])], deleted: vec![TopicId([2; 16])] });
        assert_eq!(topics.since(12), Since::Changes { put: vec![], deleted: vec![] });
        assert_eq!(topics.since(99), Since::Unknown);
        assert_eq!(names(topics.after(None)), ["b", "c"]);
        assert_eq!((topics.len(), topics.partition_count()), (2, 6));
    }

    fn names<'a>(entries: impl Iterator<Item = &'a TopicEntry>) -> Vec<&'a str> {
        entries.map(|entry| entry.topic.name.as_str()).collect()
    }

    #[test]
    fn a_list_begins_behind_a_name_and_within_a_prefix() {
        let all = [topic(1, "a", 1), topic(2, "b", 1), topic(3, "ba", 1), topic(4, "bb", 1), topic(5, "c", 1)];
        let topics = Topics::new(PlacementRules::new(&[], 1).unwrap(), 1, &all);
        assert_eq!(names(topics.after(None)), ["a", "b", "ba", "bb", "c"]);
        assert_eq!(names(topics.after(Some("b"))), ["ba", "bb", "c"]);
        assert_eq!(names(topics.after(Some("aa"))), ["b", "ba", "bb", "c"]);
        assert!(names(topics.after(Some("c"))).is_empty());
        assert_eq!(names(topics.matching("b", None)), ["b", "ba", "bb"]);
        assert_eq!(names(topics.matching("b", Some("a"))), ["b", "ba", "bb"]);
        assert_eq!(names(topics.matching("b", Some("ba"))), ["bb"]);
        assert!(names(topics.matching("b", Some("bz"))).is_empty());
    }

    #[test]
    fn every_partition_has_one_owner() {
        let topics = topics();
        let entry = topics.named("b").unwrap();
        let owned: usize = (0..2).map(|shard| entry.owned_by(shard, 0..2).count()).sum();
        assert_eq!(owned, 2);
        assert_eq!(entry.owner(PartitionIndex(2)), None);
    }

    #[test]
    #[should_panic(expected = "in order")]
    fn a_missed_change_is_noticed() {
        topics().apply(12, &Change::Purged(TopicId([0; 16])));
    }
}
