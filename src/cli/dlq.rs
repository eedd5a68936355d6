//! `corelane dlq`: records that a group gave up.

mod letter;
mod list;
mod replay;

use std::collections::BTreeMap;
use std::io::Write;

use clap::Subcommand;
use corelane_client::{Client, ConsumerOptions, Offset, OffsetAt, OutOfRange, StartAt};

use self::letter::Filter;
use super::connect::ConnectArgs;
use super::failure::Failure;
use super::record_format::{RecordFormat, write_record};
use super::topic::delete_records;

const EXAMPLES: &str = "\
Examples:
  corelane dlq list
  corelane dlq peek orders.dlq.billing --count 5
  corelane dlq replay orders.dlq.billing --reason timeout --dry-run
  corelane dlq replay orders.dlq.billing --to orders-repaired --rate 100
  corelane dlq drop orders.dlq.billing --before 30d
";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Dead-letter topics, how much is in them, and whose they are
    List(list::Args),
    /// Print dead letters with their story, as JSON lines
    Peek(PeekArgs),
    /// Send dead letters to the topic they came from, or to another; they stay where they are
    Replay(replay::Args),
    /// Delete dead letters, oldest first
    Drop(delete_records::Args),
}

#[derive(Debug, clap::Args)]
struct PeekArgs {
    /// The dead-letter topic
    topic: String,
    /// At most so many
    #[arg(long, short = 'n', value_name = "N", default_value_t = 10)]
    count: u64,
    #[command(flatten)]
    filter: Filter,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::List(args) => list::run(&args),
        Command::Peek(args) => args.connect.with_client(async |client| peek(&client, &args).await),
        Command::Replay(args) => replay::run(&args),
        Command::Drop(args) => delete_records::run(&args),
    }
}

async fn peek(client: &Client, args: &PeekArgs) -> Result<(), Failure> {
    let mut printed = 0;
    let mut out = std::io::stdout().lock();
    each(client, &args.topic, &Starts::Beginning, async |partition, record| {
        if args.filter.admits(&record) {
            write_record(&mut out, RecordFormat::Json, "", &args.topic, partition, &record)
                .map_err(|error| Failure::of_output(&error))?;
            printed += 1;
        }
        Ok(printed < args.count)
    })
    .await?;
    out.flush().map_err(|error| Failure::of_output(&error))
}

/// Where to begin in each partition.
pub(super) enum Starts {
    Beginning,
    At(BTreeMap<u32, Offset>),
}

/// Gives every record that is there now to `take`, each partition in order, until that has enough. Returns up to where each partition was read.
pub(super) async fn each(
    client: &Client,
    topic: &str,
    starts: &Starts,
    mut take: impl AsyncFnMut(u32, corelane_client::RecordView<'_>) -> Result<bool, Failure>,
) -> Result<BTreeMap<u32, Offset>, Failure> {
    let count = client.topic(topic).await?.partition_count();
    let ends = client.admin().list_offsets(topic, 0..count, OffsetAt::Latest).await?;
    let begins = client.admin().list_offsets(topic, 0..count, OffsetAt::Earliest).await?;
    let mut read = BTreeMap::new();
    for (begin, end) in begins.into_iter().zip(ends) {
        let mut position = match starts {
            Starts::Beginning => begin.offset,
            Starts::At(offsets) => offsets.get(&begin.partition).copied().unwrap_or_default().max(begin.offset),
        };
        let consumer = client.consumer(ConsumerOptions { out_of_range: OutOfRange::Earliest, ..ConsumerOptions::default() });
        consumer.assign(topic, [begin.partition], StartAt::Offset(position)).await?;
        while position < end.offset {
            let Some(batch) = consumer.poll(std::time::Duration::from_millis(100)).await? else {
                position = consumer.position(topic, begin.partition).unwrap_or(position).max(position);
                continue;
            };
            for record in batch.records() {
                let offset = record.offset;
                if offset >= end.offset {
                    break;
                }
                let goes_on = take(begin.partition, record).await?;
                read.insert(begin.partition, offset.plus(1));
                if !goes_on {
                    return Ok(read);
                }
            }
            position = batch.next_offset();
        }
        read.insert(begin.partition, position);
    }
    Ok(read)
}
