//! Batches made ahead: sending one stamps the heads of its messages anew and computes one checksum over the batch.

use std::collections::HashMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use wire::batch::HEADER_BYTES;
use wire::checksum::crc32c;
use wire::{AlignedVec, BatchBuilder, BatchHeader, BatchView, BuilderOptions, TimestampMs};

use crate::message::{HEAD_BYTES, Stamp};

/// Bytes of a key: eight hexadecimal digits.
pub const KEY_BYTES: usize = 8;
/// Up to this many messages a batch is made for exactly their number, beyond it for multiples: bounds the kinds of batches kept.
const EXACT_COUNT_MAX: usize = 64;

/// Bytes of batches made before the clock starts.
const PREPARED_BYTES_MAX: usize = 64 << 20;

/// What fills the messages behind their heads.
#[derive(Debug, Clone)]
pub enum Body {
    /// A part of this share (0 to 1) is random, the rest a fixed pattern: how well a message compresses.
    Random(f64),
    /// The bytes of a file, cut or repeated to length.
    Bytes(Vec<u8>),
}

/// How messages look.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Length of a message's value, at least [`HEAD_BYTES`].
    pub message_bytes: usize,
    /// Whether messages have keys.
    pub keyed: bool,
    /// What fills them.
    pub body: Body,
}

impl Shape {
    /// The body of one message.
    fn body_bytes(&self, seed: u64) -> Vec<u8> {
        let length = self.message_bytes - HEAD_BYTES;
        match &self.body {
            Body::Random(share) => {
                let random = (length as f64 * share.clamp(0.0, 1.0)) as usize;
                let mut bytes: Vec<u8> = (0..length).map(|index| b'a' + (index % 26) as u8).collect();
                SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes[..random]);
                bytes
            }
            Body::Bytes(content) if content.is_empty() => vec![0; length],
            Body::Bytes(content) => content.iter().copied().cycle().take(length).collect(),
        }
    }

    /// The largest number of messages whose batch stays within `batch_bytes_max`; at least 1.
    pub fn count_max(&self, batch_bytes_max: usize) -> usize {
        let one = self.message_bytes + if self.keyed { KEY_BYTES } else { 0 } + wire::limits::RECORD_FIXED_BYTES;
        let room = batch_bytes_max.saturating_sub(HEADER_BYTES + 64);
        (room / one).max(1)
    }
}

/// How many of `waiting` messages go into one batch.
pub fn batch_count(waiting: usize, count_max: usize) -> usize {
    let count = waiting.min(count_max);
    if count <= EXACT_COUNT_MAX || count == count_max { count } else { count - count % EXACT_COUNT_MAX }
}

/// Where things are in a batch of some number of messages.
#[derive(Debug)]
struct Layout {
    header: BatchHeader,
    value_positions: Vec<usize>,
    key_positions: Vec<usize>,
    body_crcs: Vec<u32>,
}

/// Batches by their number of messages, and those that came back to be used again.
#[derive(Debug)]
pub struct Templates {
    shape: Shape,
    kinds: HashMap<usize, Kind>,
}

#[derive(Debug)]
struct Kind {
    layout: Layout,
    original: AlignedVec,
    spare: Vec<AlignedVec>,
}

impl Templates {
    /// None yet; they are made when first wanted.
    ///
    /// # Panics
    /// When messages are shorter than their heads: whoever reads a workload refuses that.
    pub fn new(shape: Shape) -> Templates {
        assert!(shape.message_bytes >= HEAD_BYTES, "messages of {} bytes have no room for their head", shape.message_bytes);
        Templates { shape, kinds: HashMap::new() }
    }

    /// Makes the batches that runs with batches of up to `batch_bytes_max` can want, as far as memory goes: making one while the clock
    /// runs would delay the messages due meanwhile.
    pub fn prepare(&mut self, batch_bytes_max: usize) {
        let count_max = self.shape.count_max(batch_bytes_max);
        let exact = 1..=count_max.min(EXACT_COUNT_MAX);
        let multiples = (2 * EXACT_COUNT_MAX..count_max).step_by(EXACT_COUNT_MAX);
        let mut bytes = 0;
        for count in exact.chain(multiples).chain([count_max]) {
            let kind = self.kinds.entry(count).or_insert_with(|| Kind::new(&self.shape, count));
            if kind.spare.is_empty() {
                kind.spare.push(kind.original.clone());
            }
            bytes += 2 * kind.original.len();
            if bytes > PREPARED_BYTES_MAX {
                break;
            }
        }
    }

    /// How messages look.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// A batch of `count` messages, each stamped by `stamp` and keyed by `key` with its number in the batch.
    pub fn batch(
        &mut self,
        count: usize,
        timestamp: TimestampMs,
        mut stamp: impl FnMut(usize) -> Stamp,
        mut key: impl FnMut(usize) -> [u8; KEY_BYTES],
    ) -> AlignedVec {
        let shape = &self.shape;
        let kind = self.kinds.entry(count).or_insert_with(|| Kind::new(shape, count));
        let mut batch = kind.spare.pop().unwrap_or_else(|| kind.original.clone());
        let layout = &kind.layout;
        for (index, &position) in layout.value_positions.iter().enumerate() {
            let head = batch[position..].first_chunk_mut().expect("a message starts with its head");
            stamp(index).write(head, layout.body_crcs[index]);
        }
        for (index, &position) in layout.key_positions.iter().enumerate() {
            batch[position..position + KEY_BYTES].copy_from_slice(&key(index));
        }
        let payload_crc = crc32c(&batch[layout.header.payload_range()]);
        let header = BatchHeader { payload_crc, first_timestamp_ms: timestamp, max_timestamp_ms: timestamp, ..layout.header };
        header.encode(batch.first_chunk_mut().expect("a batch starts with its header"));
        batch
    }

    /// A batch that is sent, back for another time.
    pub fn give_back(&mut self, batch: AlignedVec) {
        let Ok(header) = BatchHeader::decode(&batch) else { return };
        if let Some(kind) = self.kinds.get_mut(&(header.record_count as usize)) {
            kind.spare.push(batch);
        }
    }
}

impl Kind {
    fn new(shape: &Shape, count: usize) -> Kind {
        let mut builder = BatchBuilder::new(BuilderOptions {
            batch_bytes_max: wire::limits::BATCH_BYTES_MAX,
            message_bytes_max: wire::limits::MESSAGE_BYTES_MAX_CEILING,
            ..BuilderOptions::default()
        });
        let key = [b'0'; KEY_BYTES];
        let mut body_crcs = Vec::with_capacity(count);
        for index in 0..count {
            let body = shape.body_bytes(index as u64);
            body_crcs.push(crc32c(&body));
            let mut value = vec![0; HEAD_BYTES];
            value.extend_from_slice(&body);
            let pushed = builder.push(TimestampMs(0), shape.keyed.then_some(&key[..]), Some(&value), &[]);
            pushed.expect("a workload's batches are within the protocol's limits");
        }
        let original = builder.build();
        let view = BatchView::new(&original).expect("a batch just built is whole");
        let position = |bytes: &[u8]| bytes.as_ptr().addr() - original.as_ptr().addr();
        let value_positions = view.records().map(|record| position(record.value.expect("every message has a value"))).collect();
        let key_positions = view.records().filter_map(|record| record.key).map(position).collect();
        let layout = Layout { header: *view.header(), value_positions, key_positions, body_crcs };
        Kind { layout, original, spare: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamped_batch_is_whole_and_its_messages_read_back() {
        let shape = Shape { message_bytes: 100, keyed: true, body: Body::Random(0.5) };
        let mut templates = Templates::new(shape);
        let stamp =
            |base: u64| move |index: usize| Stamp { producer: 4, sequence: base + index as u64, intended_ns: 77, partition: 9 };
        let first =
            templates.batch(3, TimestampMs(5), stamp(0), |index| *format!("{index:08x}").as_bytes().first_chunk().unwrap());
        templates.give_back(first);
        let second = templates
            .batch(3, TimestampMs(6), stamp(3), |index| *format!("{:08x}", index + 16).as_bytes().first_chunk().unwrap());
        let view = BatchView::new(&second).unwrap();
        assert_eq!(view.header().max_timestamp_ms, TimestampMs(6));
        for (index, record) in view.records().enumerate() {
            assert_eq!(Stamp::read(record.value.unwrap()), Some(stamp(3)(index)));
            assert_eq!(record.key.unwrap(), format!("{:08x}", index + 16).as_bytes());
            assert_eq!(record.value.unwrap().len(), 100);
        }
    }

    #[test]
    fn every_batch_is_prepared_as_far_as_memory_goes() {
        let shape = Shape { message_bytes: 100, keyed: false, body: Body::Random(0.5) };
        let mut templates = Templates::new(shape.clone());
        let bytes_max = 32 * 1024;
        templates.prepare(bytes_max);
        let count_max = shape.count_max(bytes_max);
        for waiting in 1..=2 * count_max {
            let count = batch_count(waiting, count_max);
            assert!(templates.kinds.contains_key(&count), "{count} messages");
        }
        let mut large = Templates::new(Shape { message_bytes: 4 << 20, ..shape });
        large.prepare(wire::limits::BATCH_BYTES_MAX as usize);
        let prepared: usize = large.kinds.values().map(|kind| kind.original.len()).sum();
        assert!(prepared <= PREPARED_BYTES_MAX, "{prepared} bytes");
    }

    #[test]
    fn the_kinds_of_batches_are_few() {
        let counts: std::collections::BTreeSet<usize> = (1..5000).map(|waiting| batch_count(waiting, 2000)).collect();
        assert!(counts.len() < 64 + 2000 / 64 + 2);
        assert_eq!(batch_count(64, 2000), 64);
        assert_eq!(batch_count(127, 2000), 64);
        assert_eq!(batch_count(9999, 2000), 2000);
    }

    #[test]
    fn as_many_messages_as_fit_a_batch_and_no_more() {
        for message_bytes in [32, 100, 1024, 5000, 300_000] {
            let shape = Shape { message_bytes, keyed: true, body: Body::Random(1.0) };
            let count = shape.count_max(256 * 1024);
            let batch = Templates::new(shape).batch(
                count,
                TimestampMs(0),
                |index| Stamp { producer: 0, sequence: index as u64, intended_ns: 0, partition: 0 },
                |_| [b'0'; KEY_BYTES],
            );
            assert!(batch.len() <= 256 * 1024 || count == 1, "{count} messages of {message_bytes} make {}", batch.len());
        }
    }
}
