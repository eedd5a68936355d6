//! What is done before and after the load: topics, where partitions are, offsets.

use std::net::{SocketAddr, ToSocketAddrs};

use wire::{
    AlterTopicRequest, CreateTopicRequest, DeleteTopicRequest, ErrorCode, HelloReply, ListOffsetsPartition,
    ListOffsetsPartitionReply, ListOffsetsRequest, MetadataRequest, Offset, OffsetAt, PartitionIndex, TopicConfig,
    TopicConfigChanges, TopicId, limits,
};

use super::DriverError;
use super::link::Link;

/// A topic of a run.
#[derive(Debug, Clone)]
pub struct Topic {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: TopicId,
    /// The shard of each partition.
    pub shards: Vec<u16>,
    /// Number of its partition 0 in the run, over all topics.
    pub partitions_start: u32,
}

/// A partition of a run.
#[derive(Debug, Clone, Copy)]
pub struct Partition {
    /// Number in the run, over all topics.
    pub number: u32,
    /// Its topic.
    pub topic: TopicId,
    /// Its index there.
    pub index: PartitionIndex,
    /// The shard that owns it.
    pub shard: u16,
}

impl Topic {
    /// Its partitions.
    pub fn partitions(&self) -> impl Iterator<Item = Partition> + '_ {
        self.shards.iter().zip(0..).map(|(&shard, index)| Partition {
            number: self.partitions_start + index,
            topic: self.id,
            index: PartitionIndex(index),
            shard,
        })
    }
}

/// A connection for set-up, any shard.
#[derive(Debug)]
pub struct Session {
    link: Link,
    hello: HelloReply,
}

/// The address of a broker given as `host:port`.
///
/// # Errors
/// When the name does not resolve.
pub fn resolve(broker: &str) -> Result<SocketAddr, DriverError> {
    let io = |source| DriverError::Io { address: broker.to_owned(), operation: "resolve", source };
    let mut addresses = broker.to_socket_addrs().map_err(io)?;
    addresses.next().ok_or_else(|| io(std::io::ErrorKind::NotFound.into()))
}

impl Session {
    /// Connects.
    ///
    /// # Errors
    /// When the broker is not there or refuses.
    pub fn connect(address: SocketAddr) -> Result<Session, DriverError> {
        let (link, hello) = Link::connect(address, "corelane-perf", None)?;
        Ok(Session { link, hello })
    }

    /// What the broker said of itself.
    pub fn hello(&self) -> &HelloReply {
        &self.hello
    }

    /// Makes topics `prefix-0`, `prefix-1` … and returns them with their partitions' shards.
    ///
    /// # Errors
    /// When the broker refuses one.
    pub fn create_topics(&mut self, prefix: &str, topics: u32, config: &TopicConfig) -> Result<Vec<Topic>, DriverError> {
        let names: Vec<String> = (0..topics).map(|number| format!("{prefix}-{number}")).collect();
        for name in &names {
            let request = CreateTopicRequest { name: name.clone(), config: config.clone(), validate_only: false };
            let reply = self.link.call(&request)?;
            if !reply.error.is_none() {
                let operation = format!("create topic {name} with {} partitions", config.partitions);
                return Err(DriverError::Refused { operation, code: reply.error, message: reply.message });
            }
        }
        self.topics(&names)
    }

    /// Topics by name, numbered in the order given.
    ///
    /// # Errors
    /// When one is not there.
    pub fn topics(&mut self, names: &[String]) -> Result<Vec<Topic>, DriverError> {
        let mut topics = Vec::with_capacity(names.len());
        let mut partitions_start = 0;
        for names in names.chunks(limits::TOPICS_PER_REQUEST_MAX) {
            let reply =
                self.link.call(&MetadataRequest { topics: Some(names.to_vec()), since_version: 0, after: None, limit: 0 })?;
            for name in names {
                let found = reply.topics.iter().find(|topic| topic.name == *name);
                let code = found.map_or(ErrorCode::UnknownTopicOrPartition, |topic| topic.error);
                let Some(found) = found.filter(|_| code.is_none()) else {
                    return Err(DriverError::Refused { operation: format!("metadata of topic {name}"), code, message: None });
                };
                let mut shards = vec![0; found.partitions.len()];
                for partition in &found.partitions {
                    if let Some(shard) = shards.get_mut(partition.partition.0 as usize) {
                        *shard = partition.shard;
                    }
                }
                let count = shards.len() as u32;
                topics.push(Topic { name: name.clone(), id: found.id, shards, partitions_start });
                partitions_start += count;
            }
        }
        Ok(topics)
    }

    /// Changes topics.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn alter_topics(&mut self, topics: &[Topic], changes: &TopicConfigChanges) -> Result<(), DriverError> {
        for topic in topics {
            let request = AlterTopicRequest { name: topic.name.clone(), changes: changes.clone(), validate_only: false };
            let reply = self.link.call(&request)?;
            if !reply.error.is_none() {
                let operation = format!("alter topic {}", topic.name);
                return Err(DriverError::Refused { operation, code: reply.error, message: reply.message });
            }
        }
        Ok(())
    }

    /// Removes topics; those already gone are no error.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn delete_topics(&mut self, topics: &[Topic]) -> Result<(), DriverError> {
        for topic in topics {
            let reply = self.link.call(&DeleteTopicRequest { name: topic.name.clone() })?;
            if !reply.error.is_none() && reply.error != ErrorCode::UnknownTopicOrPartition {
                let operation = format!("delete topic {}", topic.name);
                return Err(DriverError::Refused { operation, code: reply.error, message: None });
            }
        }
        Ok(())
    }

    /// The offset at `at` of one partition.
    ///
    /// # Errors
    /// When the broker refuses.
    pub fn offset(&mut self, topic: &Topic, partition: u32, at: OffsetAt) -> Result<Offset, DriverError> {
        let wanted = ListOffsetsPartition { topic: topic.id, partition: PartitionIndex(partition), at };
        Ok(self.list_offsets(vec![wanted])?[0])
    }

    /// The offset at `at` of each partition, in the order of the partitions' numbers.
    ///
    /// # Errors
    /// When the broker refuses one.
    pub fn offsets(&mut self, topics: &[Topic], at: OffsetAt) -> Result<Vec<Offset>, DriverError> {
        let partitions: Vec<Partition> = topics.iter().flat_map(Topic::partitions).collect();
        let mut offsets = Vec::with_capacity(partitions.len());
        for chunk in partitions.chunks(limits::PARTITIONS_PER_REQUEST_MAX) {
            let wanted = chunk
                .iter()
                .map(|partition| ListOffsetsPartition { topic: partition.topic, partition: partition.index, at })
                .collect();
            offsets.extend(self.list_offsets(wanted)?);
        }
        Ok(offsets)
    }

    fn list_offsets(&mut self, partitions: Vec<ListOffsetsPartition>) -> Result<Vec<Offset>, DriverError> {
        let wanted = partitions.len();
        let reply = self.link.call(&ListOffsetsRequest { partitions })?;
        if reply.partitions.len() != wanted {
            return Err(self.link.protocol("a reply names other partitions than its request"));
        }
        let offset = |found: &ListOffsetsPartitionReply| {
            let operation = || format!("offset of {}/{}", found.topic, found.partition);
            let refused = || DriverError::Refused { operation: operation(), code: found.error, message: None };
            if found.error.is_none() { Ok(found.offset) } else { Err(refused()) }
        };
        reply.partitions.iter().map(offset).collect()
    }
}
