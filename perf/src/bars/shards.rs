//! Requests that arrive at the wrong shard: the price of one hop over the mesh.

use super::pairs::{interleave, median};
use super::rig::{Produced, Rig};
use super::{BarError, Judged, Limit};

const PARTITIONS: u32 = 16;

pub(crate) fn measure(rig: &Rig) -> Result<Vec<Judged>, BarError> {
    let broker = rig.broker_of_two()?;
    let found = interleave(
        rig.pairs,
        || {
            rig.blast(&broker, PARTITIONS, 0, |partition, shard_count| {
                let wrong = partition.index.0 % 2 == 0;
                if wrong { (partition.shard + 1) % shard_count } else { partition.shard }
            })
        },
        || rig.blast(&broker, PARTITIONS, 0, |partition, _| partition.shard),
    )?;
    broker.stop()?;
    let spread = found.spread(Produced::bytes_per_second, Produced::bytes_per_second);
    let detail = format!(
        "{:.3} GB/s / {:.3} GB/s; two shards and the client on two CPUs; CPU per MiB {:.3} / {:.3} ms",
        median(found.ours.iter().map(Produced::bytes_per_second)) / 1e9,
        median(found.theirs.iter().map(Produced::bytes_per_second)) / 1e9,
        median(found.ours.iter().map(Produced::cpu_ms_per_mib)),
        median(found.theirs.iter().map(Produced::cpu_ms_per_mib)),
    );
    Ok(vec![Judged::ratio("wrong-shard", "half the requests on the wrong shard / none", Limit::AtLeast(0.80), spread, detail)])
}
