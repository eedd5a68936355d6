//! The answer to a request for which there was no memory within `memory.admission_wait`: "overloaded", and the connection goes on.

use super::{Incoming, Refused, dispatch};
use crate::{ack, fetch, offsets, shard::Shard};
use wire::{
    AlterTopicReply, Api, CreateTopicReply, DeleteTopicReply, DescribeClusterReply, DescribeConfigReply, DescribeTopicReply,
    ErrorCode, FetchReply, FetchRequest, ListOffsetsReply, ListOffsetsRequest, ListTopicsReply, MetadataReply, PartitionKey,
    ProduceReply, ProduceRequest, TopicConfig, TopicId,
};

const CODE: ErrorCode = ErrorCode::Overloaded;

/// Answers `incoming`, of which only the body was read. A new connection is refused: it has nothing to lose.
pub(super) fn answer(shard: &Shard, incoming: Incoming) -> Result<(), Refused> {
    let bytes = incoming.header.total_length;
    let text = format!("no memory for a request of {bytes} bytes within memory.admission_wait");
    shard.counters.overloaded.set(shard.counters.overloaded.get() + 1);
    let message = || Some(text.clone());
    match dispatch::spoken(&incoming.header)? {
        Api::Hello => return Err(Refused::new(CODE, text)),
        Api::Produce => {
            let request: ProduceRequest = incoming.decode()?;
            let keys = request.partitions.iter().map(|part| PartitionKey::new(part.topic, part.partition));
            let partitions = keys.map(|key| ack::refused(key, CODE, message())).collect();
            incoming.into_reply_to().send(&ProduceReply { partitions });
        }
        Api::Fetch => {
            let request: FetchRequest = incoming.decode()?;
            let keys = request.partitions.iter().map(|part| PartitionKey::new(part.topic, part.partition));
            let partitions = keys.map(|key| fetch::failed(key, CODE, message())).collect();
            incoming.into_reply_to().send(&FetchReply { partitions });
        }
        Api::ListOffsets => {
            let request: ListOffsetsRequest = incoming.decode()?;
            let partitions = request.partitions.iter().map(|part| offsets::failed(part, CODE)).collect();
            incoming.into_reply_to().send(&ListOffsetsReply { partitions });
        }
        Api::Metadata => incoming.into_reply_to().send(&MetadataReply {
            error: CODE,
            message: message(),
            version: 0,
            only_changes: false,
            brokers: Vec::new(),
            topics: Vec::new(),
            more: false,
            deleted: Vec::new(),
        }),
        Api::ListTopics => incoming.into_reply_to().send(&ListTopicsReply { error: CODE, topics: Vec::new(), more: false }),
        Api::CreateTopic => {
            incoming.into_reply_to().send(&CreateTopicReply { error: CODE, message: message(), id: TopicId([0; 16]) });
        }
        Api::AlterTopic => {
            incoming.into_reply_to().send(&AlterTopicReply { error: CODE, message: message(), config: TopicConfig::default() })
        }
        Api::DeleteTopic => incoming.into_reply_to().send(&DeleteTopicReply { error: CODE, message: message() }),
        Api::DescribeTopic => incoming.into_reply_to().send(&DescribeTopicReply {
            error: CODE,
            message: message(),
            id: TopicId([0; 16]),
            config: TopicConfig::default(),
            created_ms: 0,
            partitions: Vec::new(),
        }),
        Api::DescribeCluster => incoming.into_reply_to().send(&DescribeClusterReply {
            error: CODE,
            cluster_id: [0; 16],
            controller: 0,
            topics: 0,
            partitions: 0,
            brokers: Vec::new(),
        }),
        Api::DescribeConfig => incoming.into_reply_to().send(&DescribeConfigReply { error: CODE, entries: Vec::new() }),
        unserved => return Err(dispatch::not_served(unserved.code())),
    }
    Ok(())
}
