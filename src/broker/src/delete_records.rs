//! DeleteRecords: moves log starts on a client's behalf.

use crate::{
    connection::Incoming,
    mail::{Answer, Call},
    partition::Partition,
    scatter::{self, Question},
    shard::Shard,
};
use std::rc::Rc;
use wire::{
    DeleteRecordsPartition, DeleteRecordsPartitionReply, DeleteRecordsReply, DeleteRecordsRequest, ErrorCode, Offset,
    PartitionKey,
};

/// Answers a request when every log start that could be moved is durable.
pub(crate) async fn delete_records(shard: Rc<Shard>, request: DeleteRecordsRequest, incoming: Incoming) {
    let partitions = scatter::ask_all(&shard, request.partitions).await;
    incoming.into_reply_to().send(&DeleteRecordsReply { partitions });
}

impl Question for DeleteRecordsPartition {
    type Reply = DeleteRecordsPartitionReply;

    fn key(&self) -> PartitionKey {
        PartitionKey::new(self.topic, self.partition)
    }

    async fn answer(&self, shard: &Shard, partition: &Partition) -> DeleteRecordsPartitionReply {
        if shard.topics.borrow().is_internal(self.topic) {
            return failed(self, ErrorCode::InternalTopic, None);
        }
        let end = partition.high_watermark();
        if self.before > end {
            let message = format!("records before {} cannot be deleted: what consumers see ends at {end}", self.before);
            return failed(self, ErrorCode::OffsetOutOfRange, Some(message));
        }
        match partition.log.set_log_start(self.before).await {
            Ok(()) => {
                let log_start = partition.log.watermarks().log_start;
                DeleteRecordsPartitionReply { log_start, ..failed(self, ErrorCode::None, None) }
            }
            Err(error) => failed(self, ErrorCode::StorageFailed, Some(error.to_string())),
        }
    }

    fn failed(&self, code: ErrorCode) -> DeleteRecordsPartitionReply {
        failed(self, code, None)
    }

    fn into_call(questions: Vec<Self>) -> Call {
        Call::DeleteRecords(questions)
    }

    fn into_answer(replies: Vec<DeleteRecordsPartitionReply>) -> Answer {
        Answer::DeleteRecords(replies)
    }

    fn from_answer(answer: Answer) -> Option<Vec<DeleteRecordsPartitionReply>> {
        match answer {
            Answer::DeleteRecords(replies) => Some(replies),
            _ => None,
        }
    }
}

/// The answer for a partition of which nothing was deleted.
pub(crate) fn failed(part: &DeleteRecordsPartition, error: ErrorCode, message: Option<String>) -> DeleteRecordsPartitionReply {
    DeleteRecordsPartitionReply { topic: part.topic, partition: part.partition, error, message, log_start: Offset::ZERO }
}
