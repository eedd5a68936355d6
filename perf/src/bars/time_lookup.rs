//! The offset for a timestamp, over a log of a size: how long it takes, and that it does not read the log for it.
//!
//! The records have the broker's time, and the times asked for are drawn over the whole of it, so that most lookups end in another segment than the
//! one before.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use wire::{OffsetAt, TimestampKind, TimestampMs, TopicConfig};

use super::fill::filled_topic;
use super::rig::{Rig, config, rest};
use super::{BarError, Judged, Limit};
use crate::driver::session::Session;
use crate::latency::{self, Percentiles, percentile_ms};

const PARTITIONS: u32 = 4;
/// Enough for a p99.
const LOOKUPS: u32 = 2000;
/// What a lookup may read: the index of one segment, and the 128 KiB between two of its entries with the batch that begins there.
const READ_KIB_MAX: f64 = 512.0;

pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let broker = rig.broker()?;
    let mut session = Session::connect(broker.address())?;
    let config = TopicConfig { timestamp_kind: TimestampKind::Append, ..config(PARTITIONS) };
    let begin_ms = now_ms();
    let topics = filled_topic(&broker, &mut session, &config, rig.log_bytes)?;
    let end_ms = now_ms();
    rest(&broker)?;
    let ends = session.offsets(&topics, OffsetAt::Latest)?;
    let mut random = SmallRng::seed_from_u64(7);
    let mut latency = latency::histogram();
    let mut found = Vec::new();
    let before = broker.usage()?;
    for number in 0..LOOKUPS {
        let partition = number % PARTITIONS;
        let at = TimestampMs(random.random_range(begin_ms..=end_ms));
        let started = Instant::now();
        let offset = session.offset(&topics[0], partition, OffsetAt::Timestamp(at))?;
        latency.saturating_record(started.elapsed().as_nanos() as u64);
        found.push((partition, at, offset));
    }
    let read_bytes = broker.usage()?.since(&before).read_bytes;
    let wrong = wrong_answers(found, ends.iter().map(|end| end.0).collect());
    broker.stop()?;
    let p99_ms = percentile_ms(&latency, 0.99).expect("there are enough lookups for a p99");
    let read_kib = read_bytes as f64 / 1024.0 / f64::from(LOOKUPS);
    let detail = format!("{}; {:.1} GB, {PARTITIONS} partitions", Percentiles::of(&latency).line(), rig.log_bytes as f64 / 1e9);
    Ok(vec![
        Judged::exact("time-lookup", "p99 of the offset for a timestamp, in milliseconds", Limit::AtMost(5.0), p99_ms, detail),
        Judged::correct(
            "time-lookup-read",
            "KiB read from the disk per lookup, as the kernel counts them",
            Limit::AtMost(READ_KIB_MAX),
            read_kib,
            format!("{:.1} MB for {LOOKUPS} lookups", read_bytes as f64 / 1e6),
        ),
        Judged::correct(
            "time-lookup-order",
            "answers beyond the end, or before that of an earlier time",
            Limit::AtMost(0.0),
            wrong as f64,
            format!("{LOOKUPS} lookups"),
        ),
    ])
}

fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as i64)
}

/// Append times ascend, and so must the answers within a partition.
fn wrong_answers(mut found: Vec<(u32, TimestampMs, wire::Offset)>, ends: Vec<u64>) -> usize {
    found.sort_by_key(|(partition, at, _)| (*partition, at.0));
    let beyond = found.iter().filter(|(partition, _, offset)| offset.0 > ends[*partition as usize]).count();
    let falls = |pair: &[(u32, TimestampMs, wire::Offset)]| pair[0].0 == pair[1].0 && pair[0].2 > pair[1].2;
    beyond + found.windows(2).filter(|pair| falls(pair)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_falls_or_is_beyond_the_end_is_wrong() {
        let answer = |partition, at, offset| (partition, TimestampMs(at), wire::Offset(offset));
        let check = |found: &[_], wrong: usize| assert_eq!(wrong_answers(found.to_vec(), vec![100, 50]), wrong, "{found:?}");
        check(&[answer(0, 5, 10), answer(1, 6, 3), answer(0, 4, 10), answer(0, 9, 100)], 0);
        check(&[answer(0, 5, 10), answer(0, 4, 11)], 1);
        check(&[answer(1, 5, 51)], 1);
    }
}
