//! One read of partitions that several shards own: all of them are asked side by side, each for its share of the bytes.
//!
//! ```text
//!  wanted, by owner ─► shares of what is left ─► every owner at once ─► parts, by their place in the request
//!         ▲                                              │ an owner has more than its share, others have left some of theirs
//!         └────────────── what it has still ─────────────┘
//! ```
//!
//! Each owner may pass its share with its last batch, as one that is asked alone may pass the bound; what begins behind the bound is left out.

use super::{Part, failed};
use crate::mail::ReadPart;
use futures_util::future::join_all;
use shards::{ShardId, buffer::Shared};
use std::collections::BTreeMap;
use wire::{BatchHeader, ErrorCode, Offset, limits::FETCH_BYTES_MAX};

/// Partitions to read, each with its place in the request, by the shard that owns them.
pub(super) type Wanted = BTreeMap<ShardId, Vec<(usize, ReadPart)>>;

/// What one owner may read in one go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// Read before, of all partitions.
    pub(super) bytes_before: usize,
    /// The most with those.
    pub(super) bytes_max: usize,
}

/// Reads what is wanted, up to `bytes_max` in all, into its places in `found`. What owners leave goes to others while it is much, or while there are less
/// than `bytes_min`. `ask` has an owner read partitions, and gives an answer for each of
/// them, or `None`: it ends.
pub(super) async fn read(
    mut wanted: Wanted,
    bytes_min: usize,
    bytes_max: usize,
    found: &mut [Option<Part>],
    ask: impl AsyncFn(ShardId, Vec<ReadPart>, Share) -> Option<Vec<Part>>,
) {
    // At the end of what is left each owner would bring a batch that does not fit.
    let enough_bytes = bytes_min.max(bytes_max / 2).min(bytes_max);
    let mut bytes = 0;
    while !wanted.is_empty() {
        let bytes_before = bytes;
        let left_bytes = bytes_max - bytes;
        let shares = shares(&wanted, left_bytes);
        let asked = std::mem::take(&mut wanted).into_iter().zip(shares).map(|((owner, parts), share_bytes)| {
            let share = Share { bytes_before, bytes_max: bytes_before + share_bytes };
            let (ask, asked) = (&ask, parts.iter().map(|(_, part)| part.clone()).collect());
            async move { (owner, parts, share_bytes, ask(owner, asked, share).await) }
        });
        for (owner, parts, share_bytes, read) in join_all(asked).await {
            let Some(read) = read else {
                for (index, part) in parts {
                    found[index].get_or_insert_with(|| (failed(part.key, ErrorCode::ShuttingDown, None), Vec::new()));
                }
                continue;
            };
            bytes += read.iter().map(|(reply, _)| reply.batch_bytes as usize).sum::<usize>();
            let is_cut_short = share_bytes < wanted_bytes(&parts).min(left_bytes);
            for ((index, part), read) in parts.into_iter().zip(read) {
                let rest = if is_cut_short || read.0.batch_bytes == 0 { rest(part, &read) } else { None };
                add(&mut found[index], read);
                if let Some(rest) = rest {
                    wanted.entry(owner).or_default().push((index, rest));
                }
            }
        }
        if bytes >= enough_bytes || bytes == bytes_before {
            break;
        }
    }
    keep_within(found, bytes_max);
}

/// A part of `bytes` for each owner, by what is wanted of it.
fn shares(wanted: &Wanted, bytes: usize) -> Vec<usize> {
    let each: Vec<usize> = wanted.values().map(|parts| wanted_bytes(parts)).collect();
    let all: u128 = each.iter().map(|bytes| *bytes as u128).sum();
    // All of it is given out, also when less is wanted: a batch is read whole, however little is wanted of its partition. And each gets on.
    let share = |of_owner: usize| match (bytes as u128 * of_owner as u128).checked_div(all) {
        Some(share) => usize::try_from(share).unwrap_or(bytes).max(bytes.min(1)),
        None => bytes / wanted.len(),
    };
    each.into_iter().map(share).collect()
}

fn wanted_bytes(parts: &[(usize, ReadPart)]) -> usize {
    parts.iter().fold(0, |sum, (_, part)| sum.saturating_add(part.bytes_max))
}

/// What is still wanted of a partition behind what was read; `None` when that was all.
fn rest(part: ReadPart, (reply, batches): &Part) -> Option<ReadPart> {
    let offset = next_offset(batches).unwrap_or(part.offset);
    let bytes_max = part.bytes_max.saturating_sub(reply.batch_bytes as usize);
    let is_more = reply.error.is_none() && offset < reply.high_watermark && bytes_max > 0;
    is_more.then_some(ReadPart { offset, bytes_max, ..part })
}

/// The offset behind the last batch. A batch may come in two slices: its header and the rest.
fn next_offset(slices: &[Shared]) -> Option<Offset> {
    let mut next = None;
    let mut skipped_bytes = 0;
    for slice in slices {
        while skipped_bytes < slice.len() {
            let header = BatchHeader::decode(&slice[skipped_bytes..]).expect("the log has checked what it gives");
            next = Some(header.next_offset());
            skipped_bytes += header.total_length();
        }
        skipped_bytes -= slice.len();
    }
    next
}

/// Puts what was read behind what was read of the partition before.
fn add(found: &mut Option<Part>, read: Part) {
    let Some((reply, batches)) = found else {
        *found = Some(read);
        return;
    };
    let (mut newer, more) = read;
    if !newer.error.is_none() && reply.batch_bytes > 0 {
        // The consumer meets it when it goes on behind what it gets.
        return;
    }
    newer.batch_bytes += reply.batch_bytes;
    *reply = newer;
    batches.extend(more);
}

/// Each owner may have passed its share with its last batch. Leaves out what no longer fits, in the order of the request.
fn keep_within(found: &mut [Option<Part>], bytes_max: usize) {
    let mut bytes = 0;
    for (reply, batches) in found.iter_mut().flatten() {
        let read = reply.batch_bytes as usize;
        if bytes == 0 || (bytes < bytes_max && bytes + read <= FETCH_BYTES_MAX as usize) {
            bytes += read;
        } else {
            reply.batch_bytes = 0;
            batches.clear();
        }
    }
}

#[cfg(test)]
mod tests;
