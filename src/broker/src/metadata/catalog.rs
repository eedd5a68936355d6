//! What topics and producers there are: a pure state machine. Every change costs O(1), whatever the number of topics.

use super::{
    producers::{NamedProducer, Producers},
    rules,
    topic::Topic,
};
use crate::config::Limits;
use hashbrown::HashMap;
use std::sync::Arc;
use wire::{ErrorCode, TopicConfig, TopicConfigChanges, TopicId};

/// One change, as it is journalled, broadcast and applied. Applying the same changes in the same order gives the same catalog.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// A topic is new, or has another configuration.
    Put(Arc<Topic>),
    /// A topic is gone for clients; its partitions are being removed.
    Deleting(Arc<Topic>),
    /// Every shard has removed the partitions of a deleted topic.
    Purged(TopicId),
    /// Producer ids up to this one are reserved.
    ProducerIds {
        /// Behind the last.
        end: i64,
    },
    /// A named producer is new, or has a new instance.
    Producer(Arc<NamedProducer>),
    /// A named producer is forgotten.
    ProducerForgotten(Arc<NamedProducer>),
}

/// A request that the catalog refuses, with the words for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl Refusal {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Refusal { code, message: message.into() }
    }
}

/// What a topic begins with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewTopic<'a> {
    pub(crate) id: TopicId,
    pub(crate) name: &'a str,
    pub(crate) config: &'a TopicConfig,
    pub(crate) created_ms: i64,
}

/// All topics, with those whose partitions are still being removed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    version: u64,
    topics: HashMap<TopicId, Arc<Topic>>,
    names: HashMap<String, TopicId>,
    deleting: HashMap<TopicId, Arc<Topic>>,
    partitions: u64,
    pub(super) producers: Producers,
}

impl Catalog {
    /// Grows by one with every change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// The topics, in no order.
    pub(crate) fn topics(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.topics.values()
    }

    /// Deleted topics whose partitions are not yet known to be gone from every shard, in no order.
    pub(crate) fn deleting(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.deleting.values()
    }

    /// The named producers, in no order.
    pub(crate) fn named_producers(&self) -> impl Iterator<Item = &Arc<NamedProducer>> {
        self.producers.named()
    }

    fn named(&self, name: &str) -> Result<&Arc<Topic>, Refusal> {
        let unknown = || Refusal::new(ErrorCode::UnknownTopicOrPartition, format!("there is no topic {name}"));
        let id = self.names.get(name).ok_or_else(unknown)?;
        Ok(self.topics.get(id).expect("every name has a topic"))
    }

    /// The change that creates a topic, or why it cannot be. Changes nothing.
    pub(crate) fn create(&self, new: NewTopic<'_>, limits: &Limits) -> Result<Change, Refusal> {
        let NewTopic { id, name, config, created_ms } = new;
        rules::check_name(name)?;
        rules::check_config(config, limits)?;
        if self.names.contains_key(name) {
            return Err(Refusal::new(ErrorCode::TopicExists, format!("topic {name} exists")));
        }
        if self.topics.len() >= limits.topics_max as usize {
            let message = format!("there are {} topics, the most that limits.topics_max allows", self.topics.len());
            return Err(Refusal::new(ErrorCode::TooManyTopics, message));
        }
        self.check_partition_count(u64::from(config.partitions), limits)?;
        let topic = Topic { id, name: name.to_owned(), config: config.clone(), created_ms, version: self.version + 1 };
        Ok(Change::Put(Arc::new(topic)))
    }

    /// The change that alters a topic, or why it cannot be. Changes nothing.
    pub(crate) fn alter(&self, name: &str, changes: &TopicConfigChanges, limits: &Limits) -> Result<Change, Refusal> {
        let topic = self.named(name)?;
        let config = rules::changed(&topic.config, changes)?;
        rules::check_config(&config, limits)?;
        self.check_partition_count(u64::from(config.partitions - topic.config.partitions), limits)?;
        Ok(Change::Put(Arc::new(Topic { config, version: self.version + 1, ..Topic::clone(topic) })))
    }

    /// The change that deletes a topic, or why it cannot be. Changes nothing.
    pub(crate) fn delete(&self, name: &str) -> Result<Change, Refusal> {
        Ok(Change::Deleting(Arc::clone(self.named(name)?)))
    }

    fn check_partition_count(&self, more: u64, limits: &Limits) -> Result<(), Refusal> {
        if self.partitions + more <= u64::from(limits.partitions_max) {
            return Ok(());
        }
        let message = format!("{} partitions exist; {more} more would exceed limits.partitions_max", self.partitions);
        Err(Refusal::new(ErrorCode::TooManyTopics, message))
    }

    /// Applies a change.
    pub(crate) fn apply(&mut self, change: &Change) {
        self.version += 1;
        match change {
            Change::Put(topic) => self.put(topic),
            Change::Deleting(topic) => {
                if let Some(topic) = self.topics.remove(&topic.id) {
                    self.names.remove(&topic.name);
                    self.partitions -= u64::from(topic.config.partitions);
                    self.deleting.insert(topic.id, topic);
                }
            }
            Change::Purged(id) => {
                self.deleting.remove(id);
            }
            Change::ProducerIds { end } => self.producers.reserve(*end),
            Change::Producer(producer) => self.producers.put(producer),
            Change::ProducerForgotten(producer) => self.producers.forget(producer),
        }
    }

    fn put(&mut self, topic: &Arc<Topic>) {
        self.partitions += u64::from(topic.config.partitions);
        match self.topics.insert(topic.id, Arc::clone(topic)) {
            Some(before) => {
                assert_eq!(before.name, topic.name, "a topic keeps its name");
                self.partitions -= u64::from(before.config.partitions);
            }
            None => {
                let taken = self.names.insert(topic.name.clone(), topic.id);
                assert!(taken.is_none(), "two topics are called {}", topic.name);
            }
        }
    }

    /// A catalog with this content.
    pub(super) fn restored(version: u64, topics: Vec<Topic>, deleting: Vec<Topic>, producers: Producers) -> Self {
        let mut catalog = Catalog { version, producers, ..Catalog::default() };
        for topic in topics {
            catalog.put(&Arc::new(topic));
        }
        catalog.deleting = deleting.into_iter().map(|topic| (topic.id, Arc::new(topic))).collect();
        catalog
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits { topics_max: 3, partitions_max: 10, ..Limits::default() }
    }

    fn config(partitions: u32) -> TopicConfig {
        TopicConfig { partitions, ..TopicConfig::default() }
    }

    fn created(catalog: &mut Catalog, number: u8, name: &str, partitions: u32) -> Result<(), ErrorCode> {
        let config = config(partitions);
        let new = NewTopic { id: TopicId([number; 16]), name, config: &config, created_ms: 1 };
        let change = catalog.create(new, &limits()).map_err(|refusal| refusal.code)?;
        catalog.apply(&change);
        Ok(())
    }

    #[test]
    fn names_are_unique_and_free_again_after_deletion() {
        let mut catalog = Catalog::default();
        created(&mut catalog, 1, "a", 1).unwrap();
        assert_eq!(created(&mut catalog, 2, "a", 1), Err(ErrorCode::TopicExists));
        let deleting = catalog.delete("a").unwrap();
        catalog.apply(&deleting);
        assert_eq!(catalog.delete("a").unwrap_err().code, ErrorCode::UnknownTopicOrPartition);
        created(&mut catalog, 2, "a", 1).unwrap();
        assert_eq!(catalog.deleting().count(), 1);
        catalog.apply(&Change::Purged(TopicId([1; 16])));
        assert_eq!((catalog.deleting().count(), catalog.topics().count(), catalog.version()), (0, 1, 4));
    }

    #[test]
    fn limits_count_topics_and_partitions() {
        let mut catalog = Catalog::default();
        created(&mut catalog, 1, "a", 4).unwrap();
        assert_eq!(created(&mut catalog, 2, "b", 7), Err(ErrorCode::TooManyTopics));
        created(&mut catalog, 2, "b", 5).unwrap();
        let grow = |partitions| TopicConfigChanges { partitions: Some(partitions), ..TopicConfigChanges::default() };
        assert_eq!(catalog.alter("a", &grow(6), &limits()).unwrap_err().code, ErrorCode::TooManyTopics);
        let change = catalog.alter("a", &grow(5), &limits()).unwrap();
        catalog.apply(&change);
        assert_eq!(catalog.alter("a", &grow(4), &limits()).unwrap_err().code, ErrorCode::InvalidPartitions);
        let deleting = catalog.delete("b").unwrap();
        catalog.apply(&deleting);
        created(&mut catalog, 3, "c", 5).unwrap();
    }
}
