//! The section of a checkpoint's partition for its idempotent producers.
//!
//! ```text
//!  producers (kind 1, version 1)  0 as_of_block u64 │ 8 count u32 │ 12 reserved u32 │ producers, ascending by id
//!  producer   0 id i64 │ 8 last_append_ms i64 │ 16 next_sequence u32 │ 20 epoch u16 │ 22 batches u8 │ 23 flags u8 (bit 0: there were others before)
//!            24 batches, oldest first: base_offset u64, length u32
//! ```

use wire::{ProducerEpoch, ProducerId, Sequence};

use super::FormatError;
use super::bytes::{Reader, Writer};
use crate::limits::{PRODUCER_BATCHES_KEPT, PRODUCERS_PER_PARTITION_MAX};
use crate::partition_state::PartitionState;
use crate::producers::{Producer, Producers};

const HEADER_BYTES: usize = 8;
const KIND: u16 = 1;
const VERSION: u16 = 1;
const PRODUCERS_BYTES: usize = 16;
const PRODUCER_BYTES: usize = 24;
const PRODUCER_BATCH_BYTES: usize = 12;
const PRODUCER_TRIMMED: u8 = 1;

/// Bytes of the section; 0: the partition has no section. With no producer left it has one all the same when some may come on top of it.
pub(super) fn bytes(state: &PartitionState) -> usize {
    if state.producers.is_empty() && state.producers_as_of_block == state.as_of_block {
        return 0;
    }
    let batches = |producer: &Producer| PRODUCER_BYTES + producer.batches().len() * PRODUCER_BATCH_BYTES;
    HEADER_BYTES + PRODUCERS_BYTES + state.producers.known().iter().map(batches).sum::<usize>()
}

pub(super) fn encode(writer: &mut Writer<'_>, state: &PartitionState, section_bytes: usize) {
    let length = section_bytes - HEADER_BYTES;
    writer.u16(KIND).u16(VERSION).u32(length as u32);
    writer.u64(state.producers_as_of_block).u32(state.producers.len() as u32).u32(0);
    for producer in state.producers.known() {
        writer.i64(producer.id().0).i64(producer.last_append_ms()).u32(producer.next_sequence().0.cast_unsigned());
        writer.u16(producer.epoch().0.cast_unsigned()).u8(producer.batches().len() as u8);
        writer.u8(if producer.is_trimmed() { PRODUCER_TRIMMED } else { 0 });
        for batch in producer.batches() {
            writer.u64(batch.base_offset.0).u32(batch.length);
        }
    }
}

pub(super) fn decode(reader: &mut Reader<'_>, sections_bytes: u32, state: &mut PartitionState) -> Result<(), FormatError> {
    let before = reader.remaining();
    let (kind, version, length) = (reader.u16()?, reader.u16()?, reader.u32()?);
    if (kind, version) != (KIND, VERSION) {
        return Err(reader.field("section", kind.into(), "version 1 of kind 1 is known"));
    }
    if u64::from(length) + HEADER_BYTES as u64 != u64::from(sections_bytes) {
        return Err(reader.field("section length", length.into(), "must be what the sections take"));
    }
    state.producers_as_of_block = reader.u64()?;
    let count = reader.u32()?;
    reader.reserved(4)?;
    if count as usize > PRODUCERS_PER_PARTITION_MAX {
        return Err(reader.field("producers", count.into(), "must be within the limit"));
    }
    let mut known = Vec::with_capacity((count as usize).min(reader.remaining() / PRODUCER_BYTES));
    for _ in 0..count {
        known.push(decode_producer(reader)?);
    }
    state.producers = Producers::from_known(known).ok_or_else(|| reader.field("producers", count.into(), "must ascend"))?;
    if before - reader.remaining() != sections_bytes as usize {
        return Err(reader.field("section length", length.into(), "must be that of the producers"));
    }
    Ok(())
}

fn decode_producer(reader: &mut Reader<'_>) -> Result<Producer, FormatError> {
    let (id, last_append_ms, next_sequence) = (reader.i64()?, reader.i64()?, reader.u32()?.cast_signed());
    let (epoch, count, flags) = (reader.u16()?.cast_signed(), reader.u8()?, reader.u8()?);
    if flags & !PRODUCER_TRIMMED != 0 {
        return Err(reader.field("producer flags", flags.into(), "bit 0 is known"));
    }
    let mut batches = [(0, 0); PRODUCER_BATCHES_KEPT];
    let Some(batches) = batches.get_mut(..usize::from(count)) else {
        return Err(reader.field("producer batches", count.into(), "must be within the limit"));
    };
    for batch in &mut *batches {
        *batch = (reader.u64()?, reader.u32()?);
    }
    let is_trimmed = flags & PRODUCER_TRIMMED != 0;
    Producer::from_stored(ProducerId(id), ProducerEpoch(epoch), Sequence(next_sequence), last_append_ms, is_trimmed, batches)
        .ok_or_else(|| reader.field("producer", id.cast_unsigned(), "must have batches that ascend"))
}
