//! What the answer to a produce request means for its batches.

use std::time::Instant;

use wire::{ErrorCode, Offset, PartitionKey, ProducePartitionReply, ProduceReply, TimestampMs};

use super::batch::Batch;
use super::{PartitionPlan, ProducePlan, ProducerCore};
use crate::error::{ClientError, ErrorKind, Result};
use crate::record::Delivery;

impl ProducerCore {
    /// Takes a request back with its reply, or with the reason why there is none.
    pub(crate) fn on_reply(&mut self, now: Instant, plan: ProducePlan, reply: Result<ProduceReply>, random: u64) {
        let in_flight = self.requests_in_flight.get_mut(&plan.target).expect("the request was counted");
        assert!(*in_flight > 0, "the request was counted");
        *in_flight -= 1;
        self.unpark(plan.target);
        if reply.is_err() {
            self.metadata_wanted = true;
        }
        for (index, partition) in plan.partitions.into_iter().enumerate() {
            let key = partition.key;
            let queue = self.queue(key);
            assert!(queue.requests_in_flight > 0, "the request was counted");
            queue.requests_in_flight -= 1;
            let place = queue.place.clone();
            let result = match &reply {
                Err(error) => Err(error.clone().at(&place)),
                Ok(reply) => match reply.partitions.get(index) {
                    Some(answer) if answer.topic == key.topic && answer.partition == key.partition => into_result(answer, &place),
                    _ => Err(ClientError::new(ErrorKind::Protocol, "produce", &*place, "the reply does not name the partition")),
                },
            };
            match result {
                Ok(answer) => self.accepted(partition, answer),
                Err(error) => self.refused(now, partition, &error, random),
            }
            self.make_runnable(now, key);
        }
    }

    fn accepted(&mut self, partition: PartitionPlan, answer: &ProducePartitionReply) {
        let queue = self.queue(partition.key);
        queue.failures = 0;
        queue.last_error = None;
        queue.not_before = None;
        let mut offset = answer.base_offset;
        for batch in partition.batches {
            let delivery = Delivery {
                partition: partition.key.partition.0,
                offset,
                append_time: append_time(answer),
                level: answer.level,
                replicas_durable: answer.replicas_durable,
            };
            // The batches of a partition in one request are appended back to back, and produced batches have no gaps.
            offset = Offset(offset.0 + u64::from(batch.records));
            self.finish(batch, Ok(delivery));
        }
    }

    fn refused(&mut self, now: Instant, partition: PartitionPlan, error: &ClientError, random: u64) {
        let PartitionPlan { key, mut batches } = partition;
        let stale_leader = [ErrorCode::NotLeader, ErrorCode::WrongShard, ErrorCode::UnknownTopicOrPartition];
        if error.code().is_some_and(|code| stale_leader.contains(&code)) {
            self.metadata_wanted = true;
        }
        if error.retryable() && self.options.retries {
            self.put_back(key, batches);
            self.partition_failed(now, key, error, random);
            return;
        }
        if !error.retryable() && batches.len() > 1 {
            // One of them is at fault: alone, each gets its own answer.
            batches.iter_mut().for_each(|batch| batch.alone = true);
            self.put_back(key, batches);
            return;
        }
        for batch in batches {
            let error = if batch.attempts > 1 { error.clone().after_retries(batch.attempts) } else { error.clone() };
            self.finish(batch, Err(error));
        }
    }

    fn put_back(&mut self, key: PartitionKey, batches: Vec<Batch>) {
        let queue = self.queue(key);
        for batch in batches {
            let before = queue.waiting.insert(batch.number, batch);
            assert!(before.is_none(), "numbers are not reused");
        }
    }
}

fn into_result<'a>(answer: &'a ProducePartitionReply, place: &str) -> Result<&'a ProducePartitionReply> {
    match answer.error {
        ErrorCode::None => Ok(answer),
        code => Err(ClientError::broker(code, "produce", place, answer.message.as_deref())),
    }
}

fn append_time(answer: &ProducePartitionReply) -> Option<TimestampMs> {
    (answer.append_time_ms.0 >= 0).then_some(answer.append_time_ms)
}
