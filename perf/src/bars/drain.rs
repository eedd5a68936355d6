//! A cold consumer beside producers: what it costs them, and whether it gets what the machine has left for it.
//!
//! ```text
//!   with      producers at 50 %, and consumers of old segments as fast as they can
//!   without   producers at 50 %
//!   raw       producers at 50 %, and beside the broker a file read in blocks of the same size and sent over loopback, as fast as it goes
//! ```
//!
//! The raw side is what disk, loopback and this CPU leave: it competes with the broker for all three exactly as the broker's own reads compete with its
//! appends, and neither checks nor parses anything.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wire::{Offset, OffsetAt};

use super::fill::filled_topic;
use super::pairs::{interleave, median};
use super::rig::{Rig, WARMUP, config, rest};
use super::under_load::{UnderLoad, publish_p99};
use super::{BarError, Judged, Limit};
use crate::driver::consumer::{Consumer, Inbox, Subscription};
use crate::driver::drain::drain;
use crate::driver::link::Link;
use crate::driver::session::{Partition, Session, Topic};
use crate::limits::LimitError;
use crate::limits::cold_send;
use crate::limits::ring_file::{Extents, RingFile};
use crate::process::give_up_precedence;

/// Share of the rate that saturates at which producers go on.
const LOAD: f64 = 0.5;
/// Partitions of the log that is drained, and its bytes for each of [`Rig::many_topics`]: more than the broker keeps in memory.
const OLD_PARTITIONS: u32 = 4;
const OLD_BYTES: u64 = 512 << 20;
/// Consumers that share it: while one takes a reply, the broker reads for the other.
const CONSUMERS: u32 = 2;
const RAW_FILE_BYTES: u64 = 1 << 30;

pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let broker = rig.broker()?;
    let load = UnderLoad::of_producers(rig, &broker)?;
    let mut session = Session::connect(broker.address())?;
    let old = filled_topic(&broker, &mut session, &config(OLD_PARTITIONS), OLD_BYTES * u64::from(rig.many_topics))?;
    let starts = session.offsets(&old, OffsetAt::Earliest)?;
    let ends = session.offsets(&old, OffsetAt::Latest)?;
    let log = Arc::new(OldLog { broker: broker.address(), topic: old[0].clone(), starts, ends });
    let raw_file = Arc::new(RingFile::create(&rig.data_dir, RAW_FILE_BYTES, Extents::Written, false)?);
    rest(&broker)?;
    let (time, sides) = (WARMUP + rig.time, rig.cpus);
    let found = interleave(
        rig.pairs,
        || {
            let log = Arc::clone(&log);
            beside(&load, "with a cold consumer", move || log.drain_for(time))
        },
        || {
            let without = publish_p99(&load.run(&load.at(LOAD), "without", &mut || {})?)?;
            let file = Arc::clone(&raw_file);
            let raw =
                beside(&load, "with raw reads", move || Ok(cold_send::run(&file, time, sides)?.gigabytes_per_second() * 1e9))?;
            Ok((without, raw))
        },
    )?;
    let p99_detail = format!(
        "{:.3} ms / {:.3} ms at {:.0} messages/s{}",
        median(found.ours.iter().map(|with| with.p99_ms)),
        median(found.theirs.iter().map(|(without, _)| *without)),
        load.saturated * LOAD,
        load.notes()
    );
    let rate_detail = format!(
        "{:.3} GB/s / {:.3} GB/s, {:.1} GB of old segments; beside the raw reads publish p99 is {:.3} ms{}",
        median(found.ours.iter().map(|with| with.bytes_per_second)) / 1e9,
        median(found.theirs.iter().map(|(_, raw)| raw.bytes_per_second)) / 1e9,
        (OLD_BYTES * u64::from(rig.many_topics)) as f64 / 1e9,
        median(found.theirs.iter().map(|(_, raw)| raw.p99_ms)),
        load.notes()
    );
    let judged = vec![
        load.doubt(Judged::ratio(
            "drain-publish",
            "publish p99 at 50 % load beside a cold consumer / without",
            Limit::AtMost(2.0),
            found.spread(|with| with.p99_ms, |(without, _)| *without),
            p99_detail,
        )),
        load.doubt(Judged::ratio(
            "drain",
            "bytes a cold consumer gets beside producers at 50 % load / a file read and sent beside them",
            Limit::AtLeast(0.6),
            found.spread(|with| with.bytes_per_second, |(_, raw)| raw.bytes_per_second),
            rate_detail,
        )),
    ];
    broker.stop()?;
    Ok(judged)
}

/// Producers, and who reads beside them.
struct Beside {
    p99_ms: f64,
    bytes_per_second: f64,
}

/// Runs the load with `read` beside it on another thread, from the beginning of the load on.
fn beside(
    load: &UnderLoad<'_>,
    name: &str,
    read: impl FnOnce() -> Result<f64, BarError> + Send + 'static,
) -> Result<Beside, BarError> {
    let (mut read, mut reader) = (Some(read), None);
    let found = load.run(&load.at(LOAD), name, &mut || {
        reader = read.take().map(std::thread::spawn);
    })?;
    let reader = reader.expect("the load began");
    let bytes_per_second = reader.join().expect("a reader does not panic")?;
    Ok(Beside { p99_ms: publish_p99(&found)?, bytes_per_second })
}

/// What is drained.
struct OldLog {
    broker: SocketAddr,
    topic: Topic,
    starts: Vec<Offset>,
    ends: Vec<Offset>,
}

impl OldLog {
    /// Lets consumers read for a time, from the start again when they reach the end; returns bytes per second.
    fn drain_for(&self, time: Duration) -> Result<f64, BarError> {
        let started = Instant::now();
        let consumer = |number: u32| move || self.consume(number, started, time);
        let bytes = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..CONSUMERS).map(|number| scope.spawn(consumer(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("a consumer does not panic")).sum::<Result<u64, BarError>>()
        })?;
        Ok(bytes as f64 / started.elapsed().as_secs_f64())
    }

    fn consume(&self, number: u32, started: Instant, time: Duration) -> Result<u64, BarError> {
        // The producers' thread, on the same CPU, goes first: it must not be late.
        give_up_precedence()
            .map_err(|source| BarError::Limit(LimitError::Io { operation: "give up precedence".to_owned(), source }))?;
        let mine = |partition: &Partition| partition.index.0 % CONSUMERS == number;
        let mut bytes = 0;
        while let Some(left) = time.checked_sub(started.elapsed()) {
            let (mut links, mut partitions, mut records) = (Vec::new(), Vec::new(), 0);
            for partition in self.topic.partitions().filter(mine) {
                let start = self.starts[partition.number as usize];
                records += self.ends[partition.number as usize].since(start);
                partitions.push((partition, start));
            }
            let shard_count = partitions.iter().map(|(partition, _)| partition.shard + 1).max().unwrap_or(0);
            for shard in 0..shard_count {
                links.push(Link::connect(self.broker, "perf-drain", Some(shard))?.0);
            }
            let mut inbox = Inbox::new(vec![Subscription::new(false)]);
            let consumer = Consumer::new(0, partitions, |partition| usize::from(partition.shard));
            drain(links, consumer, &mut inbox, records, left)?;
            bytes += inbox.subscriptions[0].bytes;
        }
        Ok(bytes)
    }
}
