//! Durable produce against the bare pipeline, and its CPU against receiving alone.

use super::pairs::{interleave, median};
use super::rig::{BATCH_BYTES, Rig};
use super::{BarError, Judged, Limit};
use crate::limits::{pipeline, receive};

const PARTITIONS: u32 = 16;
/// Batches unanswered: two for each partition on both sides.
const UNANSWERED: usize = 32;
const FILE_BYTES: u64 = 1 << 30;

pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let broker = rig.broker()?;
    let pipeline_options = pipeline::Options {
        folder: rig.data_dir.clone(),
        time: rig.time,
        batch_bytes: BATCH_BYTES,
        file_bytes: FILE_BYTES,
        unanswered: UNANSWERED,
        sides: rig.cpus,
        ..pipeline::Options::default()
    };
    let receive_options = receive::Options { time: rig.time, read_bytes: 1 << 20, message_bytes: BATCH_BYTES, sides: rig.cpus };
    let found = interleave(
        rig.pairs,
        || rig.blast(&broker, PARTITIONS, 0, |partition, _| partition.shard),
        || Ok((pipeline::run(&pipeline_options)?, receive::run(receive_options)?)),
    )?;
    broker.stop()?;
    let rate = found.spread(|ours| ours.bytes_per_second(), |(pipeline, _)| pipeline.bytes_per_second());
    let cpu = found.spread(|ours| ours.cpu_ms_per_mib(), |(_, receive)| receive.cpu_ms_per_mib());
    let ours = || found.ours.iter();
    let theirs = || found.theirs.iter();
    Ok(vec![
        Judged::ratio(
            "produce",
            "durable produce, 16 partitions, 256 KiB batches / bare pipeline",
            Limit::AtLeast(0.70),
            rate,
            format!(
                "{:.3} GB/s / {:.3} GB/s; client {:.0} % busy; {} requests refused",
                median(ours().map(|ours| ours.bytes_per_second())) / 1e9,
                median(theirs().map(|(pipeline, _)| pipeline.bytes_per_second())) / 1e9,
                median(ours().map(|ours| ours.blasted.client_busy)) * 100.0,
                ours().map(|ours| ours.blasted.refused).sum::<u64>()
            ),
        ),
        Judged::ratio(
            "produce-cpu",
            "broker CPU per MiB accepted / receive and drop",
            Limit::AtMost(2.0),
            cpu,
            format!(
                "{:.3} ms/MiB of its shard, {:.3} of the whole process / {:.3} ms/MiB",
                median(ours().map(|ours| ours.cpu_ms_per_mib())),
                median(ours().map(|ours| ours.process_cpu_ms_per_mib())),
                median(theirs().map(|(_, receive)| receive.cpu_ms_per_mib()))
            ),
        ),
    ])
}
