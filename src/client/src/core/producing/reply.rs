//! What the answer to a produce request means for its batches.

use std::time::Instant;

use wire::{AckLevel, ErrorCode, Offset, PartitionKey, ProducePartitionReply, ProduceReply, TimestampMs};

use super::batch::Batch;
use super::sequences::Meaning;
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
        queue.unknown_answers = 0;
        queue.last_error = None;
        queue.not_before = None;
        queue.is_relaxed = answer.level == AckLevel::Relaxed;
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
            self.finish(partition.key, batch, Ok(delivery));
        }
    }

    fn refused(&mut self, now: Instant, partition: PartitionPlan, error: &ClientError, random: u64) {
        let PartitionPlan { key, mut batches } = partition;
        let stale_leader = [ErrorCode::NotLeader, ErrorCode::WrongShard, ErrorCode::UnknownTopicOrPartition];
        if error.code().is_some_and(|code| stale_leader.contains(&code)) {
            self.metadata_wanted = true;
        }
        if let Some(fatal) = self.fatal.clone() {
            batches.into_iter().for_each(|batch| self.finish(key, batch, Err(fatal.clone())));
            return;
        }
        let is_stamped = batches.iter().any(|batch| batch.stamp.is_some());
        if is_stamped && error.code() == Some(ErrorCode::ProducerFenced) {
            batches.into_iter().for_each(|batch| self.finish(key, batch, Err(error.clone())));
            self.fail_for_good(error);
            return;
        }
        if is_stamped && let Some(ErrorCode::OutOfOrderSequence | ErrorCode::UnknownProducer) = error.code() {
            self.out_of_sequence(now, PartitionPlan { key, batches }, error, random);
            return;
        }
        if leaves_open(error) {
            batches.iter_mut().for_each(|batch| batch.is_uncertain = true);
        }
        if error.retryable() && self.options.retries {
            self.put_back(key, batches, error);
            self.partition_failed(now, key, error, random);
            return;
        }
        if !error.retryable() && batches.len() > 1 {
            // One of them is at fault: alone, each gets its own answer.
            batches.iter_mut().for_each(|batch| batch.alone = true);
            self.put_back(key, batches, error);
            return;
        }
        for batch in batches {
            let error = if batch.attempts > 1 { error.clone().after_retries(batch.attempts) } else { error.clone() };
            self.finish(key, batch, Err(error));
        }
    }

    /// The broker says that the batches do not follow, or that it does not know their producer.
    fn out_of_sequence(&mut self, now: Instant, partition: PartitionPlan, error: &ClientError, random: u64) {
        let PartitionPlan { key, mut batches } = partition;
        let first = batches.first().expect("a part of a request has batches");
        let (number, is_certain) = (first.number, !first.is_uncertain);
        let is_unknown = error.code() == Some(ErrorCode::UnknownProducer);
        let queue = self.queue(key);
        let may_lose = queue.is_relaxed;
        match queue.sequences.refused(number, is_unknown, is_certain, may_lose) {
            Meaning::TooEarly => self.put_back(key, batches, error),
            meaning => {
                if meaning == Meaning::Fatal {
                    let first = batches.remove(0);
                    self.finish(key, first, Err(error.clone()));
                } else {
                    batches[0].is_uncertain = false;
                }
                let waiting = &mut self.queue(key).waiting;
                let stamped: Vec<u64> =
                    waiting.iter().filter(|(_, batch)| batch.stamp.is_some()).map(|(number, _)| *number).collect();
                batches.extend(stamped.iter().filter_map(|number| waiting.remove(number)));
                if may_lose {
                    batches.iter_mut().for_each(|batch| batch.is_uncertain = false);
                }
                self.put_back(key, batches, error);
            }
        }
        self.partition_failed(now, key, error, random);
    }

    /// The batches will be sent again, because of `error`. When nothing of their epoch can be stored any more, those that surely are not get the next one;
    /// of the others nobody knows: they fail.
    fn put_back(&mut self, key: PartitionKey, batches: Vec<Batch>, error: &ClientError) {
        for mut batch in batches {
            let queue = self.queue(key);
            if batch.stamp.is_some() && queue.sequences.is_dead() {
                if batch.is_uncertain {
                    self.finish(key, batch, Err(error.clone()));
                    continue;
                }
                queue.sequences.taken_back(batch.number);
                batch.stamp = None;
            }
            let before = queue.waiting.insert(batch.number, batch);
            assert!(before.is_none(), "numbers are not reused");
        }
    }
}

/// Whether a batch may be stored, or may yet be, although this is the answer.
fn leaves_open(error: &ClientError) -> bool {
    use ErrorCode::{CorruptBatch, DiskFull, InvalidBatch, InvalidRequest, MessageTooLarge, NotLeader, Overloaded, WrongShard};
    let refused = [CorruptBatch, DiskFull, InvalidBatch, InvalidRequest, MessageTooLarge, NotLeader, Overloaded, WrongShard];
    error.code().is_none_or(|code| !refused.contains(&code))
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
