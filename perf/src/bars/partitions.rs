//! Many partitions against few: the rate at saturation, and the bytes written for each byte of payload.

use std::time::Duration;

use super::pairs::{interleave, median};
use super::rig::{MESSAGE_BYTES, Rig, WARMUP, rest, unique};
use super::{BarError, Judged, Limit};
use crate::broker_process::BrokerProcess;
use crate::driver::spread::Spread;
use crate::trial::Trial;
use crate::workload::{Rate, Workload};

/// Producers on each side: as many connections.
const PRODUCERS: u32 = 10;
/// Messages unanswered by one producer: 32 MiB for all.
const UNANSWERED: u64 = 3276;
/// Keys of a topic: many for each of 1000 partitions.
const KEYS: u32 = 100_000;

struct Saturated {
    messages_per_second: f64,
    written_per_payload: f64,
    messages_per_request: f64,
    refused: u64,
}

pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let (many, few) = (rig.broker()?, rig.broker()?);
    let many_topics = rig.many_topics;
    let many_partitions = many_topics * 1000;
    let found = interleave(
        rig.pairs,
        || saturate(rig, &many, many_topics, 1000, PRODUCERS / many_topics),
        || saturate(rig, &few, 1, 10, PRODUCERS),
    )?;
    many.stop()?;
    few.stop()?;
    let rate = found.spread(|many| many.messages_per_second, |few| few.messages_per_second);
    let written_many = median(found.ours.iter().map(|found| found.written_per_payload));
    let written_few = median(found.theirs.iter().map(|found| found.written_per_payload));
    let per_request = |found: &[Saturated]| median(found.iter().map(|found| found.messages_per_request));
    let refused: u64 = found.ours.iter().chain(&found.theirs).map(|found| found.refused).sum();
    let note = "bytes that the process caused to be written, until it rests / bytes of accepted batches";
    Ok(vec![
        Judged::ratio(
            "partitions",
            format!("saturation at {many_partitions} partitions / at 10, round-robin keys"),
            Limit::AtLeast(0.50),
            rate,
            format!(
                "{:.0}/s / {:.0}/s; {:.0} and {:.0} messages per request; {refused} refused",
                median(found.ours.iter().map(|found| found.messages_per_second)),
                median(found.theirs.iter().map(|found| found.messages_per_second)),
                per_request(&found.ours),
                per_request(&found.theirs),
            ),
        ),
        Judged::exact(
            "written-few",
            "bytes written / payload at 10 partitions",
            Limit::AtMost(1.10),
            written_few,
            note.to_owned(),
        ),
        Judged::exact(
            "written-many",
            format!("bytes written / payload at {many_partitions} partitions"),
            Limit::AtMost(2.3),
            written_many,
            note.to_owned(),
        ),
    ])
}

fn saturate(rig: &Rig, broker: &BrokerProcess, topics: u32, partitions: u32, producers: u32) -> Result<Saturated, BarError> {
    let workload = Workload {
        topics,
        partitions_per_topic: partitions,
        producers_per_topic: producers.max(1),
        subscriptions_per_topic: 0,
        message_bytes: MESSAGE_BYTES,
        spread: Spread::KeysRoundRobin(KEYS),
        rate: Rate::Saturate(UNANSWERED),
        warmup: WARMUP,
        duration: rig.time,
        ..Workload::default()
    };
    let prefix = unique("partitions");
    let trial = Trial {
        broker: broker.address(),
        prefix: &prefix,
        rate: workload.rate,
        verify: false,
        delete_topics: false,
        expect_disconnect: false,
        producers_from: 0,
    };
    let before = broker.usage()?;
    let found = trial.run(&workload, &mut |_| {})?;
    // What is acknowledged from the log alone is yet to be written to its segments.
    rest(broker)?;
    let used = broker.usage()?.since(&before);
    let mut session = crate::driver::session::Session::connect(broker.address())?;
    session.delete_topics(&found.topics)?;
    rest(broker)?;
    std::thread::sleep(Duration::from_millis(100));
    Ok(Saturated {
        messages_per_second: found.figures.acked_per_second,
        written_per_payload: used.written_bytes as f64 / (found.acked_bytes_total as f64).max(1.0),
        messages_per_request: found.figures.messages_per_request,
        refused: found.figures.failed + found.figures.retried,
    })
}
