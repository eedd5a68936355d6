//! `corelane topic delete-records`.

use corelane_client::{Client, Offset, OffsetAt, TimestampMs};
use serde_json::{Value, json};

use super::super::connect::ConnectArgs;
use super::super::failure::Failure;
use super::super::moment::Moment;
use super::super::table::{print, print_json, print_table};
use super::{ask, can_ask};

const EXAMPLES: &str = "\
Examples:
  corelane topic delete-records orders --before 2026-11-24T14:00 --dry-run
  corelane topic delete-records orders --before 30d --yes
  corelane topic delete-records orders --before 1200 --partition 3
  corelane topic delete-records orders --before end --yes      # everything; the topic stays
";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The topic
    name: String,
    /// The first record to keep: end, an offset, a time (local unless it names a zone), or an age such as 30d
    #[arg(long, value_name = "PLACE")]
    before: Moment,
    /// Only this partition; can be given several times
    #[arg(long = "partition", short = 'p', value_name = "N")]
    partitions: Vec<u32>,
    /// Only show what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// What is deleted of one partition: `start..before`.
struct Deletion {
    partition: u32,
    start: Offset,
    before: Offset,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if !args.yes && !args.dry_run {
        can_ask()?;
    }
    args.connect.with_client(async |client| delete(&client, args).await)
}

async fn delete(client: &Client, args: &Args) -> Result<(), Failure> {
    let mut deletions = plan(client, args).await?;
    if args.dry_run {
        return show(args, &deletions);
    }
    let records: u64 = deletions.iter().map(|deletion| deletion.before.since(deletion.start)).sum();
    if !args.yes {
        ask(&format!("Delete {records} records of {}?", args.name))?;
    }
    let before = deletions.iter().map(|deletion| (deletion.partition, deletion.before));
    let starts = client.admin().delete_records(&args.name, before).await?;
    for deletion in &mut deletions {
        deletion.before = starts[&deletion.partition];
    }
    show(args, &deletions)
}

/// What the place means in each partition: never beyond its end, since that is where "all before" ends.
async fn plan(client: &Client, args: &Args) -> Result<Vec<Deletion>, Failure> {
    let (admin, count) = (client.admin(), client.topic(&args.name).await?.partition_count());
    let partitions = if args.partitions.is_empty() { (0..count).collect() } else { args.partitions.clone() };
    let offsets = async |at| admin.list_offsets(&args.name, partitions.iter().copied(), at).await;
    let (starts, ends) = (offsets(OffsetAt::Earliest).await?, offsets(OffsetAt::Latest).await?);
    let places: Vec<Offset> = match args.before {
        Moment::Beginning => return Err(Failure::Usage("--before beginning deletes nothing".to_owned())),
        Moment::End => ends.iter().map(|end| end.offset).collect(),
        Moment::Offset(offset) => ends.iter().map(|_| Offset(offset)).collect(),
        Moment::Time(time) => {
            let found = offsets(OffsetAt::Timestamp(TimestampMs(time))).await?;
            found.into_iter().map(|found| found.offset).collect()
        }
    };
    let deletions = starts.iter().zip(&ends).zip(places).map(|((start, end), place)| Deletion {
        partition: start.partition,
        start: start.offset,
        before: place.min(end.offset).max(start.offset),
    });
    Ok(deletions.collect())
}

fn show(args: &Args, deletions: &[Deletion]) -> Result<(), Failure> {
    let deleted = |deletion: &Deletion| deletion.before.since(deletion.start);
    if args.json {
        let row = |deletion: &Deletion| json!({ "partition": deletion.partition, "log_start": deletion.before.0, "deleted": deleted(deletion) });
        return print_json(&deletions.iter().map(row).collect::<Vec<Value>>());
    }
    if args.dry_run {
        print(b"would delete:\n")?;
    }
    let row =
        |deletion: &Deletion| vec![deletion.partition.to_string(), deletion.before.0.to_string(), deleted(deletion).to_string()];
    print_table(&["PARTITION", "START", "DELETED"], &deletions.iter().map(row).collect::<Vec<_>>())
}
