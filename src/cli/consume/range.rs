//! Which offsets of each partition are wanted.
//!
//! ```text
//!   begin ≤ position < end     end: the log's end when the command began, --until, or never
//! ```
//!
//! A time means the same on both sides: the first record at or after it in the order of offsets, from the log start on, whatever stands behind it. So
//! `--from A --until B` prints what `--from A` does and `--from B` does not, and two ranges that share a time share no record and leave none out.

use std::collections::BTreeMap;

use corelane_client::{Client, Offset, OffsetAt, RecordView, TimestampMs};

use super::super::failure::Failure;
use super::super::moment::Moment;

/// Where reading stops.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    /// Not at all by itself: with `--follow`.
    follow: bool,
    offset: Option<Offset>,
    time: Option<TimestampMs>,
}

impl Until {
    pub(super) fn new(from: Moment, until: Option<Moment>, follow: bool) -> Result<Self, Failure> {
        let none = Self { follow, offset: None, time: None };
        let is_empty = match (from, until) {
            (Moment::Offset(from), Some(Moment::Offset(until))) => until <= from,
            (Moment::Time(from), Some(Moment::Time(until))) => until <= from,
            _ => false,
        };
        if is_empty {
            return Err(Failure::Usage("--until is not after --from: there is nothing between them".to_owned()));
        }
        match until {
            None => Ok(none),
            Some(Moment::End) if follow => {
                Err(Failure::Usage("--follow goes on after the end: leave out --until end".to_owned()))
            }
            Some(Moment::End) => Ok(none),
            Some(Moment::Beginning) => Err(Failure::Usage("--until beginning prints nothing".to_owned())),
            Some(Moment::Offset(offset)) => Ok(Self { offset: Some(Offset(offset)), ..none }),
            Some(Moment::Time(time)) => Ok(Self { time: Some(TimestampMs(time)), ..none }),
        }
    }
}

pub(super) struct Ranges {
    partitions: BTreeMap<u32, Range>,
    time: Option<TimestampMs>,
}

struct Range {
    begin: Offset,
    position: Offset,
    end: Option<Offset>,
}

impl Ranges {
    /// Asks the brokers for what the places named mean in each partition.
    pub(super) async fn resolve(
        client: &Client,
        topic: &str,
        partitions: &[u32],
        from: Moment,
        until: Until,
    ) -> Result<Self, Failure> {
        let admin = client.admin();
        let offsets = async |at| -> Result<BTreeMap<u32, Offset>, Failure> {
            let found = admin.list_offsets(topic, partitions.iter().copied(), at).await?;
            Ok(found.into_iter().map(|found| (found.partition, found.offset)).collect())
        };
        let begins = match from {
            Moment::Beginning => offsets(OffsetAt::Earliest).await?,
            Moment::End => offsets(OffsetAt::Latest).await?,
            Moment::Time(time) => offsets(OffsetAt::Timestamp(TimestampMs(time))).await?,
            Moment::Offset(offset) => partitions.iter().map(|partition| (*partition, Offset(offset))).collect(),
        };
        let latest = offsets(OffsetAt::Latest).await?;
        if let Moment::Offset(_) = from {
            check_begins(topic, &begins, &latest)?;
        }
        let mut ends: BTreeMap<u32, Offset> = if until.follow { BTreeMap::new() } else { latest };
        if let Some(offset) = until.offset {
            for partition in partitions {
                let end = ends.entry(*partition).or_insert(offset);
                *end = offset.min(*end);
            }
        }
        if let Some(time) = until.time {
            // Where no record is as late, one may still come: what is read is watched for it.
            let found = admin.list_offsets(topic, partitions.iter().copied(), OffsetAt::Timestamp(time)).await?;
            for found in found.into_iter().filter(|found| found.timestamp.is_some()) {
                let end = ends.entry(found.partition).or_insert(found.offset);
                *end = found.offset.min(*end);
            }
        }
        let ranges = begins.into_iter().map(|(partition, begin)| {
            let range = Range { begin, position: begin, end: ends.get(&partition).copied() };
            (partition, range)
        });
        Ok(Self { partitions: ranges.collect(), time: until.time })
    }

    /// Partitions with something to read, and where it begins.
    pub(super) fn begins(&self) -> Vec<(u32, Offset)> {
        let unread = self.partitions.iter().filter(|(_, range)| !range.reached());
        unread.map(|(partition, range)| (*partition, range.begin)).collect()
    }

    /// Whether the record is behind the end. One at or after the time to stop ends its partition.
    pub(super) fn ends_before(&mut self, partition: u32, record: &RecordView<'_>) -> bool {
        let Some(range) = self.partitions.get_mut(&partition) else { return true };
        if self.time.is_some_and(|time| record.timestamp_ms >= time) {
            range.end = Some(range.end.map_or(record.offset, |end| end.min(record.offset)));
        }
        range.end.is_some_and(|end| record.offset >= end)
    }

    /// Everything before `offset` has been seen.
    pub(super) fn read_to(&mut self, partition: u32, offset: Offset) {
        if let Some(range) = self.partitions.get_mut(&partition) {
            range.position = range.position.max(offset);
        }
    }

    /// As [`Ranges::read_to`] for all: an end behind which there are no records is reached by position alone.
    pub(super) fn look_at_positions(&mut self, position: impl Fn(u32) -> Option<Offset>) {
        for (partition, range) in &mut self.partitions {
            if let Some(offset) = position(*partition) {
                range.position = range.position.max(offset);
            }
        }
    }

    pub(super) fn reached(&self, partition: u32) -> bool {
        self.partitions.get(&partition).is_none_or(Range::reached)
    }

    pub(super) fn all_reached(&self) -> bool {
        self.partitions.values().all(Range::reached)
    }
}

/// An offset behind the end of a partition names no record, and none that comes next: it is a mistake, as one before the log start is.
fn check_begins(topic: &str, begins: &BTreeMap<u32, Offset>, latest: &BTreeMap<u32, Offset>) -> Result<(), Failure> {
    for (partition, begin) in begins {
        let Some(end) = latest.get(partition).filter(|end| begin > *end) else { continue };
        return Err(Failure::NotFound(format!(
            "no offset {}: {topic}/{partition} ends at {} (--partition chooses others)",
            begin.0, end.0
        )));
    }
    Ok(())
}

impl Range {
    fn reached(&self) -> bool {
        self.end.is_some_and(|end| self.position >= end)
    }
}
