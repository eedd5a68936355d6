//! The consuming side: one fetch at a time per group of partitions, and the check of what arrives.

use std::collections::HashMap;
use std::net::SocketAddr;

use hdrhistogram::Histogram;
use wire::{BatchHeader, BatchView, ErrorCode, FetchPartition, FetchRequest, FrameHeader, Offset, PayloadKind, encode_request};

use super::DriverError;
use super::link::{Link, Piece};
use super::session::Partition;
use crate::latency;
use crate::verify::{Arrival, Delivered};

/// Partitions named in one fetch: its body is encoded at each fetch, and the reply names them all.
const PARTITIONS_PER_FETCH_MAX: usize = 1000;
/// How long the broker may hold an empty fetch.
const FETCH_WAIT_MS: u32 = 500;
/// Bytes of one fetch reply.
const FETCH_BYTES_MAX: u32 = 4 << 20;
/// Bytes of one partition in it.
const FETCH_PARTITION_BYTES_MAX: u32 = 1 << 20;

/// Partitions fetched together.
#[derive(Debug)]
struct Slot {
    link: usize,
    partitions: Vec<(Partition, Offset)>,
    /// Where the next fetch starts, so that each partition comes first in turn.
    rotation: usize,
    in_flight: bool,
}

/// One consumer.
#[derive(Debug)]
pub struct Consumer {
    subscription: usize,
    slots: Vec<Slot>,
    /// Slot and rotation of each fetch under way, by link and correlation.
    asked: HashMap<(usize, u64), (usize, usize)>,
}

/// What a subscription received.
#[derive(Debug)]
pub struct Subscription {
    /// The verifier; `None` when the run does not verify.
    pub delivered: Option<Delivered>,
    /// Messages received, repeated ones not counted when the run verifies.
    pub messages: u64,
    /// Bytes received, as batches.
    pub bytes: u64,
}

/// What the consumers share.
#[derive(Debug)]
pub struct Inbox {
    /// By subscription number.
    pub subscriptions: Vec<Subscription>,
    /// End-to-end latencies, from the intended time, since the last second's end, of messages due in `measured`.
    pub end_to_end: Histogram<u64>,
    /// Messages due in this time count.
    pub measured: std::ops::Range<u64>,
    /// Fetches refused for a reason that passes.
    pub refused: u64,
}

impl Consumer {
    /// A consumer of partitions from offsets on; `link_of` names the link for each.
    pub fn new(
        subscription: usize,
        partitions: Vec<(Partition, Offset)>,
        mut link_of: impl FnMut(&Partition) -> usize,
    ) -> Consumer {
        let mut by_link: Vec<(usize, Vec<(Partition, Offset)>)> = Vec::new();
        for (partition, offset) in partitions {
            let link = link_of(&partition);
            match by_link.iter_mut().find(|(known, list)| *known == link && list.len() < PARTITIONS_PER_FETCH_MAX) {
                Some((_, list)) => list.push((partition, offset)),
                None => by_link.push((link, vec![(partition, offset)])),
            }
        }
        let slot = |(link, partitions)| Slot { link, partitions, rotation: 0, in_flight: false };
        Consumer { subscription, slots: by_link.into_iter().map(slot).collect(), asked: HashMap::new() }
    }

    /// Its links.
    pub fn links(&self) -> impl Iterator<Item = usize> + '_ {
        self.slots.iter().map(|slot| slot.link)
    }

    /// Asks for more wherever nothing is asked.
    pub fn send(&mut self, links: &mut [Link], touched: &mut Vec<usize>) {
        for (index, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| !slot.in_flight) {
            let (before, after) = slot.partitions.split_at(slot.rotation);
            let partitions = after
                .iter()
                .chain(before)
                .map(|(partition, offset)| FetchPartition {
                    topic: partition.topic,
                    partition: partition.index,
                    offset: *offset,
                    max_bytes: FETCH_PARTITION_BYTES_MAX,
                    leader_epoch: None,
                })
                .collect();
            let request = FetchRequest { max_wait_ms: FETCH_WAIT_MS, min_bytes: 1, max_bytes: FETCH_BYTES_MAX, partitions };
            let link = &mut links[slot.link];
            let correlation = link.correlation();
            link.queue(Piece::Own(encode_request(correlation, &request, 0)));
            slot.in_flight = true;
            self.asked.insert((slot.link, correlation), (index, slot.rotation));
            touched.push(slot.link);
        }
    }

    /// A reply came on `link`.
    ///
    /// # Errors
    /// When it is not one, or names an error that does not pass.
    pub fn reply(
        &mut self,
        link: usize,
        address: SocketAddr,
        header: &FrameHeader,
        frame: &[u8],
        now_ns: u64,
        inbox: &mut Inbox,
    ) -> Result<(), DriverError> {
        let body = Link::access::<FetchRequest>(address, header, frame)?;
        let Some((index, rotation)) = self.asked.remove(&(link, header.correlation_id)) else {
            return Err(DriverError::protocol(address, "a reply to no fetch"));
        };
        let slot = &mut self.slots[index];
        slot.in_flight = false;
        slot.rotation = (rotation + 1) % slot.partitions.len();
        let count = slot.partitions.len();
        if body.partitions.len() != count {
            return Err(DriverError::protocol(address, "a fetch reply names other partitions than its request"));
        }
        let mut attached = &frame[header.attachment_range()];
        for (position, reply) in body.partitions.iter().enumerate() {
            let (partition, next) = &mut slot.partitions[(rotation + position) % count];
            let code = ErrorCode::from_code(reply.error.to_native());
            if code.retryable() {
                inbox.refused += 1;
            } else if !code.is_none() {
                let operation = format!("fetch of {}/{} from {}", partition.topic, partition.index, next);
                let message = reply.message.as_ref().map(|text| text.as_str().to_owned());
                return Err(DriverError::Refused { operation, code, message });
            }
            let Some((batches, rest)) = attached.split_at_checked(reply.batch_bytes.to_native() as usize) else {
                return Err(DriverError::protocol(address, "a fetch reply is shorter than it says"));
            };
            attached = rest;
            inbox.subscriptions[self.subscription].bytes += batches.len() as u64;
            *next = inbox
                .take(self.subscription, partition.number, batches, *next, now_ns)
                .map_err(|reason| DriverError::protocol(address, reason))?;
        }
        Ok(())
    }
}

impl Subscription {
    /// Nothing yet.
    pub fn new(verify: bool) -> Subscription {
        Subscription { delivered: verify.then(Delivered::default), messages: 0, bytes: 0 }
    }
}

impl Inbox {
    /// Nothing yet, for `subscriptions`.
    pub fn new(subscriptions: Vec<Subscription>) -> Inbox {
        Inbox { subscriptions, end_to_end: latency::histogram(), measured: 0..0, refused: 0 }
    }

    /// Takes whole batches of a partition; returns the offset after them.
    fn take(
        &mut self,
        subscription: usize,
        partition: u32,
        mut batches: &[u8],
        mut next: Offset,
        now_ns: u64,
    ) -> Result<Offset, String> {
        while !batches.is_empty() {
            let header = BatchHeader::decode(batches).map_err(|error| error.to_string())?;
            let Some((batch, rest)) = batches.split_at_checked(header.total_length()) else {
                return Err("a batch is cut off".to_owned());
            };
            batches = rest;
            let from = next;
            next = next.max(header.next_offset());
            if header.payload_kind != PayloadKind::Records {
                continue;
            }
            let Some(delivered) = &mut self.subscriptions[subscription].delivered else {
                self.subscriptions[subscription].messages += u64::from(header.record_count);
                continue;
            };
            let Ok(view) = BatchView::new(batch) else {
                delivered.damaged();
                continue;
            };
            for record in view.records() {
                // A batch may begin before the offset that was asked for.
                if record.offset < from {
                    continue;
                }
                self.receive(subscription, partition, record.value.unwrap_or_default(), now_ns);
            }
        }
        Ok(next)
    }

    /// A message arrived for a subscription.
    pub fn receive(&mut self, subscription: usize, partition: u32, message: &[u8], now_ns: u64) {
        let subscription = &mut self.subscriptions[subscription];
        let Some(delivered) = &mut subscription.delivered else {
            subscription.messages += 1;
            return;
        };
        match delivered.receive(partition, message) {
            Arrival::Whole(stamp) => {
                subscription.messages += 1;
                if self.measured.contains(&stamp.intended_ns) {
                    self.end_to_end.saturating_record(now_ns.saturating_sub(stamp.intended_ns));
                }
            }
            // It stands for one that was waited for.
            Arrival::Damaged => subscription.messages += 1,
            Arrival::Again(_) => {}
        }
    }

    /// Messages received by all subscriptions.
    pub fn messages(&self) -> u64 {
        self.subscriptions.iter().map(|subscription| subscription.messages).sum()
    }
}
