//! What the core is told of topics: the shard's copy of the catalog.

use crate::topics::{TopicEntry, Topics};
use consumer_groups::Topic;
use wire::TopicId;

impl consumer_groups::Topics for Topics {
    fn by_name(&self, name: &str) -> Option<Topic<'_>> {
        self.named(name).map(seen)
    }

    fn by_id(&self, id: TopicId) -> Option<Topic<'_>> {
        self.get(id).map(seen)
    }
}

fn seen(entry: &TopicEntry) -> Topic<'_> {
    Topic { id: entry.topic.id, name: &entry.topic.name, partitions: entry.topic.config.partitions }
}
