//! What there is to read, as the driver knows it.

use wire::{PartitionKey, TopicId};

/// A topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topic<'a> {
    /// Its identity.
    pub id: TopicId,
    /// Its name.
    pub name: &'a str,
    /// How many partitions it has; they only grow.
    pub partitions: u32,
}

/// The topics at the moment of an event. After a change the driver says [`crate::Event::TopicsChanged`].
pub trait Topics {
    /// The topic of that name.
    fn by_name(&self, name: &str) -> Option<Topic<'_>>;

    /// The topic with that identity; `None` means that it has been deleted.
    fn by_id(&self, id: TopicId) -> Option<Topic<'_>>;

    /// Whether there is such a partition.
    fn has(&self, partition: PartitionKey) -> bool {
        self.by_id(partition.topic).is_some_and(|topic| partition.partition.0 < topic.partitions)
    }
}
