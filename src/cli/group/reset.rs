//! `corelane group reset-offsets`.

use std::collections::BTreeMap;

use corelane_client::{Client, Offset, OffsetAt, TimestampMs};

use crate::cli::connect::ConnectArgs;
use crate::cli::failure::Failure;
use crate::cli::moment::Moment;
use crate::cli::table::{print, print_table};

/// Moves a group that has no members; says where from and where to
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The group
    group: String,
    /// In this topic
    #[arg(long, value_name = "TOPIC")]
    topic: String,
    /// Only this partition; can be given several times
    #[arg(long = "partition", short = 'p', value_name = "N")]
    partitions: Vec<u32>,
    /// Where to: beginning, end, an offset, a time, or an age such as 2h
    #[arg(long, value_name = "PLACE", conflicts_with = "shift", required_unless_present = "shift")]
    to: Option<Moment>,
    /// By so many records, forward or (with a minus) back
    #[arg(long, value_name = "RECORDS", allow_hyphen_values = true)]
    shift: Option<i64>,
    /// Also forget records that failed and wait to be tried again
    #[arg(long)]
    clear_parked: bool,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    args.connect.with_client(async |client| {
        let admin = client.admin();
        let plan = plan(&client, args).await?;
        let rows: Vec<Vec<String>> = plan
            .iter()
            .map(|(partition, step)| {
                let from = step.from.map_or("-".to_owned(), |offset| offset.0.to_string());
                vec![partition.to_string(), from, step.to.0.to_string()]
            })
            .collect();
        print_table(&["PARTITION", "FROM", "TO"], &rows)?;
        if args.dry_run {
            return print(b"nothing was changed\n");
        }
        let offsets: BTreeMap<u32, Option<Offset>> = plan.iter().map(|(partition, step)| (*partition, Some(step.to))).collect();
        admin.alter_group_offsets(&args.group, &args.topic, &offsets, args.clear_parked).await?;
        print(format!("group {} is moved in {}\n", args.group, args.topic).as_bytes())
    })
}

struct Step {
    from: Option<Offset>,
    to: Offset,
}

/// Where each partition goes, within what the log holds.
async fn plan(client: &Client, args: &Args) -> Result<BTreeMap<u32, Step>, Failure> {
    let admin = client.admin();
    let count = client.topic(&args.topic).await?.partition_count();
    let partitions = if args.partitions.is_empty() { (0..count).collect() } else { args.partitions.clone() };
    if let Some(missing) = partitions.iter().find(|partition| **partition >= count) {
        return Err(Failure::NotFound(format!("no partition {missing}: topic {} has {count}", args.topic)));
    }
    let offsets = async |at| -> Result<BTreeMap<u32, Offset>, Failure> {
        let found = admin.list_offsets(&args.topic, partitions.iter().copied(), at).await?;
        Ok(found.into_iter().map(|found| (found.partition, found.offset)).collect())
    };
    let (starts, ends) = (offsets(OffsetAt::Earliest).await?, offsets(OffsetAt::Latest).await?);
    let before: BTreeMap<u32, Offset> = match admin.describe_group(&args.group).await {
        Ok(group) => {
            let of_topic = group.partitions.into_iter().filter(|partition| partition.name == args.topic);
            of_topic.filter_map(|partition| Some((partition.partition.0, partition.committed?.offset))).collect()
        }
        Err(error) if error.code() == Some(corelane_client::ErrorCode::GroupNotFound) && args.shift.is_none() => BTreeMap::new(),
        Err(error) => return Err(error.into()),
    };
    let mut wanted = BTreeMap::new();
    match (args.to, args.shift) {
        (Some(Moment::Beginning), _) => wanted.clone_from(&starts),
        (Some(Moment::End), _) => wanted.clone_from(&ends),
        (Some(Moment::Offset(offset)), _) => wanted.extend(partitions.iter().map(|partition| (*partition, Offset(offset)))),
        (Some(Moment::Time(time)), _) => wanted = offsets(OffsetAt::Timestamp(TimestampMs(time))).await?,
        (None, Some(shift)) => {
            // Where nothing is committed there is nothing to shift from.
            wanted.extend(
                before
                    .iter()
                    .filter(|(partition, _)| partitions.contains(partition))
                    .map(|(partition, offset)| (*partition, Offset(offset.0.saturating_add_signed(shift)))),
            );
        }
        (None, None) => return Err(Failure::Usage("give --to or --shift".to_owned())),
    }
    let steps = wanted.into_iter().map(|(partition, to)| {
        let to = to.max(starts[&partition]).min(ends[&partition]);
        (partition, Step { from: before.get(&partition).copied(), to })
    });
    Ok(steps.collect())
}
