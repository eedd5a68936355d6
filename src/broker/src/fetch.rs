//! The way of a fetch: read what is there; if that is too little, wait until a high watermark moves; hand the stored bytes to the
//! socket unchanged.
//!
//! ```text
//!  loop: anything visible above the offsets asked for? ── no ──► watch the partitions (here and on other shards), wait
//!            │ yes                                                       ▲
//!            ▼                                                           │
//!        reply memory held ─► read here and, with a hop, there ─► enough, or an error, or late? ── no ──┘
//!                                                                  │ yes
//!                                                                  ▼ reply: body, then the batches as stored
//! ```

mod read;
mod shares;

pub(crate) use read::read_code;

use crate::{
    admission::within,
    calls,
    connection::{Connection, ReplyTo, reply_memory},
    mail::{Answer, Call, Mail, ReadPart},
    partition::{Partition, Watcher},
    router::{Route, route},
    shard::Shard,
};
use futures_util::future::{join_all, select};
use hashbrown::HashMap;
use shards::{
    ShardId,
    buffer::{Portable, Shared},
    clock::{self, Monotonic},
    sync::Notify,
};
use shares::{Share, Wanted};
use std::{pin::pin, rc::Rc, time::Duration};
use wire::{ErrorCode, FetchPartition, FetchPartitionReply, FetchReply, FetchRequest, Offset, PartitionKey};

/// After a wake-up that brought too little, more is let gather this long: a fetch that wants much is not run for each batch.
const GATHER: Duration = Duration::from_millis(2);

/// What was read of one partition.
type Part = (FetchPartitionReply, Vec<Shared>);

/// Answers a fetch.
pub(crate) async fn fetch(shard: Rc<Shard>, request: FetchRequest, reply_to: ReplyTo) {
    let limit = &shard.config.limits;
    let connection = Rc::clone(reply_to.connection());
    let wait = Duration::from_millis(u64::from(request.max_wait_ms)).min(limit.fetch_wait_max.0);
    let deadline = clock::monotonic() + wait;
    // A single batch may need more memory than is asked for.
    let mut needed_bytes = 0;

    let (parts, memory) = loop {
        let more = Rc::new(Notify::new());
        let moved = more.notified();
        let bytes_max = (request.max_bytes as usize).min(limit.fetch_bytes_max.as_usize()).min(connection.reply_bytes_max());
        let bytes_min = (request.min_bytes as usize).min(bytes_max);
        // Watching before reading: what becomes visible in between is not missed.
        let may_wait = bytes_min > 0 && clock::monotonic() < deadline && !shard.is_stopping();
        if may_wait {
            watch(&shard, &request, &more, deadline).await;
        }
        let wanted_bytes = wanted_bytes(&request, bytes_max).max(needed_bytes);
        let Some(mut memory) = reply_memory(&shard, &connection, wanted_bytes).await else { return };
        let parts = read_all(&shard, &request, bytes_min, bytes_max).await;
        if connection.is_closed() {
            return;
        }
        let bytes = parts.iter().map(|(reply, _)| reply.batch_bytes as usize).sum();
        if !memory.grow_to(bytes) {
            // What was read is not kept without its memory: it is read again once that is there.
            needed_bytes = bytes;
            continue;
        }
        let failed = parts.iter().any(|(reply, _)| !reply.error.is_none());
        if bytes >= bytes_min || failed || !may_wait {
            memory.shrink_to(bytes);
            break (parts, memory);
        }
        drop((parts, memory));
        wait_for_more(&shard, &connection, moved, deadline).await;
        if bytes_min > 1 {
            clock::sleep(GATHER.min(deadline.since(clock::monotonic()))).await;
        }
    };

    let mut batches = Vec::new();
    let mut partitions = Vec::with_capacity(parts.len());
    for (reply, read) in parts {
        partitions.push(reply);
        batches.extend(read);
    }
    let bytes: usize = batches.iter().map(Shared::len).sum();
    shard.counters.fetched_bytes.set(shard.counters.fetched_bytes.get() + bytes as u64);
    reply_to.send_fetched(&FetchReply { partitions }, batches, memory, request);
}

/// The most that the partitions together may bring, when none has a batch above what was asked for.
fn wanted_bytes(request: &FetchRequest, bytes_max: usize) -> usize {
    let parts: usize = request.partitions.iter().map(|part| part.max_bytes as usize).fold(0, usize::saturating_add);
    parts.min(bytes_max)
}

/// Waits until a watched partition moves, the deadline passes, or nobody wants the answer any more.
async fn wait_for_more(shard: &Shard, connection: &Connection, moved: impl Future<Output = ()>, deadline: Monotonic) {
    if shard.is_stopping() || connection.is_closed() {
        // It was told while the partitions were read, and is not told again.
        return;
    }
    let closing = pin!(connection.closing.notified());
    let stopping = pin!(shard.stop.notified());
    let moved = pin!(moved);
    let woken = select(moved, select(closing, stopping));
    // Why it woke does not matter: the caller looks again.
    let _why = within(deadline.since(clock::monotonic()), woken).await;
}

/// Asks to be told through `more` once any partition shows more than `request` starts from.
async fn watch(shard: &Rc<Shard>, request: &FetchRequest, more: &Rc<Notify>, deadline: Monotonic) {
    let mut elsewhere: HashMap<ShardId, Vec<(PartitionKey, Offset)>> = HashMap::new();
    for part in &request.partitions {
        let key = PartitionKey::new(part.topic, part.partition);
        match route(shard, key) {
            Route::Here(partition) => partition.watch(Watcher::Here(Rc::downgrade(more)), clock::monotonic_coarse()),
            Route::Shard(owner) => elsewhere.entry(owner).or_default().push((key, part.offset)),
            Route::Nowhere(_) => {}
        }
    }
    let watches = elsewhere.into_iter().map(async |(owner, seen)| {
        calls::watch(shard, owner, more, |id| Mail::Watch { id, seen, until_ns: deadline.as_nanos() }).await;
    });
    join_all(watches).await;
}

/// A watch of another shard: told at once when there is more already.
pub(crate) fn watch_for(shard: &Shard, source: ShardId, id: u64, seen: Vec<(PartitionKey, Offset)>, until: Monotonic) {
    let now = clock::monotonic_coarse();
    for (key, offset) in seen {
        let partition = shard.partitions.borrow().get(&key).cloned();
        match partition {
            Some(partition) if partition.high_watermark() <= offset => {
                partition.watch(Watcher::There { shard: source, id, until }, now);
            }
            Some(_) => return calls::send_now(shard, source, Mail::Wake { id }),
            None => {}
        }
    }
}

/// Reads every partition of the request, up to `bytes_max` in all. Waits for nothing but disks and other shards.
async fn read_all(shard: &Rc<Shard>, request: &FetchRequest, bytes_min: usize, bytes_max: usize) -> Vec<Part> {
    let mut found: Vec<Option<Part>> = Vec::with_capacity(request.partitions.len());
    let mut wanted = Wanted::new();
    for (index, part) in request.partitions.iter().map(read_part).enumerate() {
        found.push(None);
        match route(shard, part.key) {
            Route::Here(_) => wanted.entry(shard.id).or_default().push((index, part)),
            Route::Shard(owner) => wanted.entry(owner).or_default().push((index, part)),
            Route::Nowhere(code) => found[index] = Some((failed(part.key, code, None), Vec::new())),
        }
    }
    shares::read(wanted, bytes_min, bytes_max, &mut found, async |owner, parts, share| ask(shard, owner, parts, share).await)
        .await;
    found.into_iter().map(|part| part.expect("every partition was read here or there")).collect()
}

/// Has an owner read; `None`: it ends.
async fn ask(shard: &Rc<Shard>, owner: ShardId, parts: Vec<ReadPart>, share: Share) -> Option<Vec<Part>> {
    let Share { bytes_before, bytes_max } = share;
    if owner == shard.id {
        return Some(read_parts(shard, parts, bytes_before, bytes_max).await);
    }
    let Some(Answer::Read(read)) = calls::ask(shard, owner, Call::Read { parts, bytes_before, bytes_max }).await else {
        return None;
    };
    Some(read.into_iter().map(|(reply, batches)| (reply, batches.into_iter().map(Portable::into_shared).collect())).collect())
}

/// The other end of a hop.
pub(crate) async fn read_for(
    shard: Rc<Shard>,
    source: ShardId,
    id: u64,
    parts: Vec<ReadPart>,
    bytes_before: usize,
    bytes_max: usize,
) {
    let read = read_parts(&shard, parts, bytes_before, bytes_max).await.into_iter();
    let read = read.map(|(reply, batches)| (reply, batches.into_iter().map(Portable::from).collect())).collect();
    calls::send_now(&shard, source, Mail::Answer { id, answer: Answer::Read(read) });
}

/// Reads partitions that this shard owns.
async fn read_parts(shard: &Shard, parts: Vec<ReadPart>, bytes_before: usize, bytes_max: usize) -> Vec<Part> {
    let mut read: Vec<Option<Part>> = Vec::with_capacity(parts.len());
    let mut here = Vec::with_capacity(parts.len());
    for (index, part) in parts.into_iter().enumerate() {
        read.push(None);
        match route(shard, part.key) {
            Route::Here(partition) => here.push(read::Wanted { index, partition, part }),
            Route::Shard(_) => read[index] = Some((failed(part.key, ErrorCode::WrongShard, None), Vec::new())),
            Route::Nowhere(code) => read[index] = Some((failed(part.key, code, None), Vec::new())),
        }
    }
    for (index, part) in read::read_here(here, bytes_before, bytes_max).await {
        read[index] = Some(part);
    }
    read.into_iter().map(|part| part.expect("every partition was read or refused")).collect()
}

fn read_part(wanted: &FetchPartition) -> ReadPart {
    ReadPart {
        key: PartitionKey::new(wanted.topic, wanted.partition),
        offset: wanted.offset,
        bytes_max: wanted.max_bytes as usize,
        leader_epoch: wanted.leader_epoch,
    }
}

fn reply(partition: &Partition, error: ErrorCode, message: Option<String>, bytes: usize) -> FetchPartitionReply {
    let marks = partition.log.watermarks();
    FetchPartitionReply {
        topic: partition.key.topic,
        partition: partition.key.partition,
        error,
        message,
        high_watermark: marks.high_watermark,
        log_start: marks.log_start,
        log_end: marks.appended_end,
        batch_bytes: u32::try_from(bytes).expect("a read is bounded by a frame"),
    }
}

/// The answer for a partition of which nothing was read.
pub(crate) fn failed(key: PartitionKey, error: ErrorCode, message: Option<String>) -> FetchPartitionReply {
    FetchPartitionReply {
        topic: key.topic,
        partition: key.partition,
        error,
        message,
        high_watermark: Offset::ZERO,
        log_start: Offset::ZERO,
        log_end: Offset::ZERO,
        batch_bytes: 0,
    }
}
