//! What the answers to fetches and lookups mean.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use wire::{
    BatchHeader, ErrorCode, FetchPartitionReply, FetchReply, ListOffsetsReply, Offset, OffsetAt, PartitionKey, PayloadKind,
};

use super::assigned::{Assigned, Position};
use super::{ConsumerCore, FetchPart, FetchPlan, Fetched, LookupPlan, RawBatch};
use crate::core::cluster_map::{ClusterMap, Target};
use crate::error::{ClientError, ErrorKind, Result};
use crate::options::OutOfRange;
use crate::transport::Frame;

impl ConsumerCore {
    /// Takes a fetch back with its answer, or with the reason why there is none.
    pub(crate) fn on_fetched(&mut self, now: Instant, plan: FetchPlan, reply: Result<(FetchReply, Frame)>, random: u64) {
        self.request_ended(plan.target);
        let (reply, frame) = match reply {
            Ok(reply) => reply,
            Err(error) => {
                self.metadata_wanted = true;
                for part in &plan.partitions {
                    self.part_failed(now, part.key, part.generation, &error, random);
                }
                return;
            }
        };
        let mut begin = frame.attachments().start;
        for (index, part) in plan.partitions.iter().enumerate() {
            let answer = reply.partitions.get(index).filter(|answer| {
                answer.topic == part.key.topic
                    && answer.partition == part.key.partition
                    && answer.batch_bytes as usize <= frame.attachments().end - begin
            });
            let Some(answer) = answer else {
                let cause = "the answer does not name the partition, or more bytes than it brings";
                let error = ClientError::new(ErrorKind::Protocol, "fetch", "", cause);
                self.part_failed(now, part.key, part.generation, &error, random);
                // What follows cannot be told apart any more.
                begin = frame.attachments().end;
                continue;
            };
            let end = begin + answer.batch_bytes as usize;
            self.part_fetched(now, part, answer, &frame, begin..end, random);
            begin = end;
        }
    }

    /// Takes a lookup back with its answer, or with the reason why there is none.
    pub(crate) fn on_looked_up(&mut self, now: Instant, plan: LookupPlan, reply: Result<ListOffsetsReply>, random: u64) {
        self.request_ended(plan.target);
        if reply.is_err() {
            self.metadata_wanted = true;
        }
        for (index, part) in plan.partitions.iter().enumerate() {
            let result = match &reply {
                Err(error) => Err(error.clone()),
                Ok(reply) => match reply.partitions.get(index) {
                    Some(answer) if answer.topic == part.key.topic && answer.partition == part.key.partition => {
                        match answer.error {
                            ErrorCode::None => Ok(answer.offset),
                            code => Err(ClientError::broker(code, "list offsets", "", None)),
                        }
                    }
                    _ => Err(ClientError::new(ErrorKind::Protocol, "list offsets", "", "the answer does not name the partition")),
                },
            };
            match result {
                Ok(offset) => {
                    if let Some(assigned) = self.partitions.get_mut(&part.key)
                        && assigned.generation == part.generation
                    {
                        assigned.resolve(offset);
                    }
                }
                Err(error) => self.part_failed(now, part.key, part.generation, &error, random),
            }
        }
    }

    /// No connection to `target` could be opened.
    pub(crate) fn connection_failed(&mut self, now: Instant, target: Target, map: &ClusterMap, error: &ClientError, random: u64) {
        self.metadata_wanted = true;
        let concerned: Vec<(PartitionKey, u64)> = self
            .partitions
            .iter()
            .filter(|(key, assigned)| assigned.askable(now) && map.leader(**key) == Some(target))
            .map(|(key, assigned)| (*key, assigned.generation))
            .collect();
        for (key, generation) in concerned {
            self.part_failed(now, key, generation, error, random);
        }
    }

    /// Metadata names no leader, or nothing is known of the topic yet. That is no answer of a broker: it is asked.
    pub(super) fn leader_unknown(&mut self, now: Instant, key: PartitionKey, random: u64) {
        let backoff = self.backoff;
        self.metadata_wanted = true;
        self.assigned(key).retry_later(now, backoff, random);
    }

    /// Brokers were asked for the metadata of `topics`, and `map` is what they said.
    pub(crate) fn metadata_answered(&mut self, topics: &[String], map: &ClusterMap) {
        let topics: BTreeSet<&str> = topics.iter().map(String::as_str).collect();
        let is_missing = |(key, assigned): &(&PartitionKey, &mut Assigned)| {
            !assigned.busy && topics.contains(&*assigned.topic) && map.partition(**key).is_none()
        };
        let mut gone = Vec::new();
        for (key, assigned) in self.partitions.iter_mut().filter(is_missing) {
            assigned.unknown_answers = assigned.unknown_answers.saturating_add(1);
            if assigned.is_gone() && !assigned.halted {
                gone.push(*key);
            }
        }
        for key in gone {
            let message = Some("metadata does not have it any more");
            let error = ClientError::broker(ErrorCode::UnknownTopicOrPartition, "fetch", "", message);
            self.part_halted(key, &error);
        }
    }

    fn request_ended(&mut self, target: Target) {
        let in_flight = self.requests_in_flight.get_mut(&target).expect("the request was counted");
        assert!(*in_flight > 0, "the request was counted");
        *in_flight -= 1;
    }

    fn part_fetched(
        &mut self,
        now: Instant,
        part: &FetchPart,
        answer: &FetchPartitionReply,
        frame: &Frame,
        place: std::ops::Range<usize>,
        random: u64,
    ) {
        if answer.error != ErrorCode::None {
            let error = ClientError::broker(answer.error, "fetch", "", answer.message.as_deref());
            self.part_failed(now, part.key, part.generation, &error, random);
            return;
        }
        let Some(assigned) = self.partitions.get_mut(&part.key) else { return };
        if assigned.generation != part.generation {
            return;
        }
        assigned.busy = false;
        assigned.high_watermark = Some(answer.high_watermark);
        let mut begin = place.start;
        let mut next = part.offset;
        while begin < place.end {
            let header = match BatchHeader::decode(&frame.bytes_from(begin)[..place.end - begin]) {
                Ok(header) if header.total_length() <= place.end - begin => header,
                Ok(header) => {
                    let cause = format!("a batch of {} bytes is cut after {}", header.total_length(), place.end - begin);
                    return self.part_corrupt(part.key, next, cause);
                }
                Err(error) => return self.part_corrupt(part.key, next, error.to_string()),
            };
            if header.next_offset() > next {
                if has_records(&header) {
                    self.buffer(part.key, header, frame, begin, next, answer.high_watermark);
                }
                next = header.next_offset();
            }
            begin += header.total_length();
        }
        let backoff = self.backoff;
        let assigned = self.assigned(part.key);
        assigned.position = Position::At(next);
        if next == part.offset && !place.is_empty() {
            // Bytes that lead nowhere: asked for again at once, they would come again at once.
            assigned.unknown_answers = 0;
            assigned.retry_later(now, backoff, random);
        } else {
            assigned.succeeded();
        }
    }

    fn buffer(
        &mut self,
        key: PartitionKey,
        header: BatchHeader,
        frame: &Frame,
        begin: usize,
        from: Offset,
        high_watermark: Offset,
    ) {
        let assigned = self.assigned(key);
        assigned.batch_buffered();
        let topic = Arc::clone(&assigned.topic);
        self.buffered_bytes += header.total_length();
        let batch = RawBatch { key, topic, header, frame: frame.clone(), begin, from, high_watermark };
        self.buffered.push_back(Fetched::Batch(batch));
    }

    fn part_corrupt(&mut self, key: PartitionKey, next: Offset, cause: String) {
        let assigned = self.assigned(key);
        assigned.position = Position::At(next);
        assigned.halted = true;
        let place = format!("{}/{} at offset {}", assigned.topic, key.partition.0, next.0);
        let error = ClientError::new(ErrorKind::Corrupt, "fetch", place, cause);
        self.buffered.push_back(Fetched::Error(key, error));
    }

    fn part_failed(&mut self, now: Instant, key: PartitionKey, generation: u64, error: &ClientError, random: u64) {
        let backoff = self.backoff;
        let out_of_range = self.options.out_of_range;
        let Some(assigned) = self.partitions.get_mut(&key) else { return };
        if assigned.generation != generation {
            return;
        }
        let code = error.code();
        let is_unknown = code == Some(ErrorCode::UnknownTopicOrPartition);
        assigned.unknown_answers = if is_unknown { assigned.unknown_answers.saturating_add(1) } else { 0 };
        assigned.retry_later(now, backoff, random);
        if code == Some(ErrorCode::OffsetOutOfRange) && out_of_range != OutOfRange::Fail {
            let at = if out_of_range == OutOfRange::Earliest { OffsetAt::Earliest } else { OffsetAt::Latest };
            tracing::warn!(topic = &*assigned.topic, partition = key.partition.0, %error, ?out_of_range, "position reset");
            assigned.position = Position::Unresolved(at);
            return;
        }
        if matches!(code, Some(ErrorCode::NotLeader | ErrorCode::WrongShard | ErrorCode::UnknownTopicOrPartition)) {
            self.metadata_wanted = true;
        }
        if !error.retryable() || assigned.is_gone() {
            self.part_halted(key, error);
        }
    }

    /// The partition stops, and the caller is told why.
    fn part_halted(&mut self, key: PartitionKey, error: &ClientError) {
        let assigned = self.assigned(key);
        assigned.halted = true;
        let place = match assigned.position {
            Position::At(offset) => format!("{}/{} at offset {}", assigned.topic, key.partition.0, offset.0),
            Position::Unresolved(_) => format!("{}/{}", assigned.topic, key.partition.0),
        };
        self.buffered.push_back(Fetched::Error(key, error.clone().at(place)));
    }
}

/// Whether a batch holds something for the caller: padding, control and emptied batches do not.
fn has_records(header: &BatchHeader) -> bool {
    matches!(header.payload_kind, PayloadKind::Records | PayloadKind::KafkaV2) && header.record_count > 0
}
