use super::*;
use futures_util::future::poll_fn;
use std::{
    cell::{Cell, RefCell},
    pin::pin,
    task::{Context, Poll, Waker},
};
use wire::{PartitionIndex, PartitionKey, TimestampMs, TopicId, batch::BatchBuilder, limits::BATCH_HEADER_BYTES};

/// A stored batch of one record at `offset`.
fn batch(offset: u64) -> Shared {
    let mut builder = BatchBuilder::new(wire::BuilderOptions::default());
    builder.push(TimestampMs(0), None, Some(b"value"), &[]).unwrap();
    let mut bytes = builder.build();
    let mut header = BatchHeader::decode(&bytes).unwrap();
    header.base_offset = Offset(offset);
    header.encode(bytes.first_chunk_mut::<BATCH_HEADER_BYTES>().unwrap());
    Shared::copy_from_slice(&bytes)
}

/// Bytes of each batch in these tests.
fn batch_bytes() -> usize {
    batch(0).len()
}

fn key(partition: usize) -> PartitionKey {
    PartitionKey::new(TopicId([7; 16]), PartitionIndex(u32::try_from(partition).unwrap()))
}

/// Partitions with so many batches each, of one record; partition `n` belongs to shard `n % shards`.
struct Owners {
    batches: Vec<u64>,
    shards: usize,
    asked: RefCell<Vec<(ShardId, Share)>>,
}

impl Owners {
    fn new(shards: usize, batches: &[u64]) -> Owners {
        Owners { batches: batches.to_vec(), shards, asked: RefCell::default() }
    }

    fn wanted(&self, bytes_each: usize) -> Wanted {
        let mut wanted = Wanted::new();
        for partition in 0..self.batches.len() {
            let part = ReadPart { key: key(partition), offset: Offset(0), bytes_max: bytes_each, leader_epoch: None };
            let owner = ShardId(u16::try_from(partition % self.shards).unwrap());
            wanted.entry(owner).or_default().push((partition, part));
        }
        wanted
    }

    /// As an owner reads: whole batches, at least one while the share is not used up.
    fn read(&self, owner: ShardId, parts: Vec<ReadPart>, share: Share) -> Option<Vec<Part>> {
        self.asked.borrow_mut().push((owner, share));
        let mut bytes = share.bytes_before;
        let read = parts.into_iter().map(|part| {
            let end = self.batches[part.key.partition.0 as usize];
            let left = part.bytes_max.min(share.bytes_max.saturating_sub(bytes));
            let count = (left / batch_bytes()).max(1) as u64;
            let count = if left == 0 && bytes > 0 { 0 } else { count.min(end - part.offset.0) };
            let batches: Vec<Shared> = (0..count).map(|number| batch(part.offset.0 + number)).collect();
            let read_bytes = batches.iter().map(Shared::len).sum::<usize>();
            bytes += read_bytes;
            let mut reply = failed(part.key, ErrorCode::None, None);
            (reply.high_watermark, reply.batch_bytes) = (Offset(end), u32::try_from(read_bytes).unwrap());
            (reply, batches)
        });
        Some(read.collect())
    }

    /// Reads all, as long as the bound has room; gives how many batches of each partition came.
    fn read_all(&self, bytes_each: usize, bytes_max: usize) -> Vec<u64> {
        self.read_some(bytes_each, bytes_max, bytes_max)
    }

    fn read_some(&self, bytes_each: usize, bytes_min: usize, bytes_max: usize) -> Vec<u64> {
        let mut found: Vec<Option<Part>> = self.batches.iter().map(|_| None).collect();
        let ask = async |owner, parts, share| self.read(owner, parts, share);
        finish(read(self.wanted(bytes_each), bytes_min, bytes_max, &mut found, ask)).expect("no owner makes it wait");
        let counts = found.into_iter().enumerate().map(|(partition, part)| {
            let (reply, batches) = part.unwrap();
            assert_eq!((reply.partition, reply.error), (key(partition).partition, ErrorCode::None));
            assert_eq!(reply.batch_bytes as usize, batches.iter().map(Shared::len).sum::<usize>());
            let offsets: Vec<u64> = batches.iter().map(|batch| BatchHeader::decode(batch).unwrap().base_offset.0).collect();
            assert!(offsets.iter().copied().eq(0..batches.len() as u64), "each batch once and in order: {offsets:?}");
            batches.len() as u64
        });
        counts.collect()
    }
}

/// What a future gives without anybody else; `None` when it waits.
fn finish<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[test]
fn no_owner_waits_for_the_answer_of_another() {
    let owners = Owners::new(5, &[1; 20]);
    let asked = Cell::new(0);
    let ask = async |owner, parts, share| {
        asked.set(asked.get() + 1);
        // An answer comes when all have been asked: one after the other they would wait for ever.
        poll_fn(|context| {
            context.waker().wake_by_ref();
            if asked.get() == 5 { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        owners.read(owner, parts, share)
    };
    let mut found: Vec<Option<Part>> = (0..20).map(|_| None).collect();
    {
        let mut reading = pin!(read(owners.wanted(1 << 20), 1, 16 << 20, &mut found, ask));
        let mut context = Context::from_waker(Waker::noop());
        let ends = (0..10).any(|_| reading.as_mut().poll(&mut context).is_ready());
        assert!(ends, "an owner was not asked before another had answered");
    }
    assert!(found.iter().flatten().all(|(reply, batches)| reply.batch_bytes > 0 && batches.len() == 1));
    assert_eq!(owners.asked.borrow().len(), 5, "each was asked once");
}

#[test]
fn what_one_owner_leaves_another_gets() {
    let bytes = batch_bytes();
    // All is in one partition: it gets all, whatever the shares.
    for shards in [1, 2, 4] {
        let mut batches = [0; 8];
        batches[3] = 100;
        let owners = Owners::new(shards, &batches);
        assert_eq!(owners.read_all(1 << 30, 40 * bytes).iter().sum::<u64>(), 40);
    }
    // A byte of each, and whole batches come.
    let owners = Owners::new(4, &[3; 8]);
    assert_eq!(owners.read_all(1, 64 * bytes), [1; 8]);
    let owners = Owners::new(4, &[0, 0, 0, 3, 0, 0, 0, 3]);
    assert_eq!(owners.read_all(1, 2 * bytes), [0, 0, 0, 1, 0, 0, 0, 1]);
    // It is little for all: nobody is asked twice.
    let owners = Owners::new(4, &[3; 8]);
    assert_eq!(owners.read_all(4 * bytes, 64 * bytes), [3; 8]);
    assert_eq!(owners.asked.borrow().len(), 4);
    // Two have much and two have little.
    let owners = Owners::new(4, &[100, 1, 100, 1]);
    let read = owners.read_all(1 << 30, 40 * bytes);
    assert_eq!((read[1], read[3]), (1, 1));
    assert!((39..=42).contains(&read.iter().sum::<u64>()), "{read:?}");
    assert!(read[0].abs_diff(read[2]) <= 1, "{read:?}");
}

#[test]
fn the_bound_holds_for_all_together() {
    let bytes = batch_bytes();
    for (shards, partitions) in [(1, 1), (2, 7), (5, 30), (30, 30)] {
        let owners = Owners::new(shards, &vec![50; partitions]);
        for batches_max in [1, 2, 5, 40] {
            let sum: u64 = owners.read_all(1 << 30, batches_max * bytes).iter().sum();
            let (least, most) = (batches_max.min(50 * partitions) as u64, (batches_max + shards) as u64);
            assert!((least..=most).contains(&sum), "{shards} shards, {partitions} partitions, {batches_max}: {sum}");
        }
        // One batch comes whole, and no other.
        for bytes_max in [0, 1] {
            assert_eq!(owners.read_all(1 << 30, bytes_max).iter().sum::<u64>(), 1, "{shards} shards");
        }
    }
}

#[test]
fn the_end_of_the_bound_is_not_filled_with_batches_that_do_not_fit() {
    let bytes = batch_bytes();
    assert_eq!(Owners::new(1, &[5]).read_some(1 << 30, 1, 2 * bytes - 1), [1]);
    assert_eq!(Owners::new(1, &[5, 5]).read_some(1 << 30, 1, 3 * bytes - 1), [2, 1], "the last may pass the bound");
    for shards in [2, 3, 6] {
        let owners = Owners::new(shards, &vec![50; shards]);
        let read = owners.read_some(1 << 30, 1, 10 * shards * bytes - 1);
        assert_eq!(read, vec![9; shards]);
        assert_eq!(owners.asked.borrow().len(), shards, "each was asked once");
    }
}

#[test]
fn an_owner_that_ends_leaves_the_others() {
    let owners = Owners::new(3, &[1; 6]);
    let ask = async |owner, parts, share| if owner == ShardId(1) { None } else { owners.read(owner, parts, share) };
    let mut found: Vec<Option<Part>> = (0..6).map(|_| None).collect();
    finish(read(owners.wanted(1 << 20), 1, 16 << 20, &mut found, ask)).unwrap();
    let errors = found.into_iter().map(|part| part.unwrap().0.error);
    let (none, ended) = (ErrorCode::None, ErrorCode::ShuttingDown);
    assert_eq!(errors.collect::<Vec<_>>(), [none, ended, none, none, ended, none]);
}

#[test]
fn the_end_of_what_was_read_is_found_however_it_is_sliced() {
    let whole = Shared::copy_from_slice(&[&batch(3)[..], &batch(4)[..]].concat());
    let (header, second) = (BATCH_HEADER_BYTES, batch_bytes());
    assert_eq!(next_offset(&[]), None);
    assert_eq!(next_offset(std::slice::from_ref(&whole)), Some(Offset(5)));
    let cuts = [0, header, second, second + header, whole.len()];
    let slices: Vec<Shared> = cuts.windows(2).map(|cut| whole.slice(cut[0]..cut[1])).collect();
    assert_eq!(next_offset(&slices), Some(Offset(5)));
    assert_eq!(next_offset(&slices[..2]), Some(Offset(4)));
}
