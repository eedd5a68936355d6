//! `corelane dlq replay`.

use std::collections::BTreeMap;
use std::time::Duration;

use corelane_client::{Client, ErrorCode, Offset, ProducerOptions, Record, RecordView, dead_letter};
use tokio::time::Instant;

use super::letter::{Filter, text};
use super::{Starts, each};
use crate::cli::connect::ConnectArgs;
use crate::cli::failure::Failure;
use crate::cli::table::print;

/// The group whose offsets say how far each dead-letter topic was replayed as a whole.
const REPLAYED: &str = "corelane.dlq-replay";
/// Says where a replayed record comes from.
const HEADER_REPLAYED: &str = "corelane.replayed_from";

/// Sends dead letters on. A whole replay begins where the last one ended; one with a filter looks at all there are
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The dead-letter topic
    topic: String,
    /// Where to; by default each to the topic that it came from, where every group that reads it sees it again
    #[arg(long, value_name = "TOPIC")]
    to: Option<String>,
    #[command(flatten)]
    filter: Filter,
    /// Also those that were replayed before
    #[arg(long)]
    again: bool,
    /// At most so many a second
    #[arg(long, value_name = "RECORDS")]
    rate: Option<f64>,
    /// Only count what would be sent
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    if args.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
        return Err(Failure::Usage("--rate is above 0".to_owned()));
    }
    args.connect.with_client(async |client| replay(&client, args).await)
}

async fn replay(client: &Client, args: &Args) -> Result<(), Failure> {
    let is_whole = args.filter.is_everything();
    let starts = if is_whole && !args.again { replayed(client, &args.topic).await? } else { Starts::Beginning };
    let producer = client.producer(ProducerOptions::default());
    let (mut sent, mut gone) = (0_u64, 0_u64);
    let begun = Instant::now();
    let read = each(client, &args.topic, &starts, async |partition, record| {
        if !args.filter.admits(&record) {
            return Ok(true);
        }
        if !text(&record, dead_letter::HEADER_RECORD_GONE).is_empty() {
            gone += 1;
            return Ok(true);
        }
        if !args.dry_run {
            if let Some(rate) = args.rate {
                tokio::time::sleep_until(begun + Duration::from_secs_f64(sent as f64 / rate)).await;
            }
            let from = format!("{}/{partition}/{}", args.topic, record.offset.0);
            let target = args.to.as_deref().unwrap_or_else(|| text(&record, dead_letter::HEADER_TOPIC));
            // One after the other: the order of the dead letters stays.
            producer.send(letter(&record, target, &from, args.to.is_none())).await?.await?;
        }
        sent += 1;
        Ok(true)
    })
    .await?;
    if is_whole && !args.dry_run {
        let offsets: BTreeMap<u32, Option<Offset>> =
            read.into_iter().map(|(partition, offset)| (partition, Some(offset))).collect();
        client.admin().alter_group_offsets(REPLAYED, &args.topic, &offsets, false).await?;
    }
    let verb = if args.dry_run { "would be sent" } else { "sent" };
    let lost = if gone == 0 { String::new() } else { format!(", {gone} left out: retention had deleted the record") };
    print(format!("{sent} records {verb}{lost}\n").as_bytes())
}

/// Up to where the topic was replayed as a whole.
async fn replayed(client: &Client, topic: &str) -> Result<Starts, Failure> {
    match client.admin().describe_group(REPLAYED).await {
        Ok(group) => {
            let of_topic = group.partitions.into_iter().filter(|partition| partition.name == topic);
            let offsets = of_topic.filter_map(|partition| Some((partition.partition.0, partition.committed?.offset)));
            Ok(Starts::At(offsets.collect()))
        }
        Err(error) if error.code() == Some(ErrorCode::GroupNotFound) => Ok(Starts::Beginning),
        Err(error) => Err(error.into()),
    }
}

/// The record as it was, without the story of its failures.
fn letter<'a>(record: &RecordView<'a>, topic: &'a str, from: &'a str, is_origin: bool) -> Record<'a> {
    let mut letter = Record::to(topic);
    letter.key = record.key;
    letter.value = record.value;
    if is_origin && record.key.is_none() {
        letter.partition = text(record, dead_letter::HEADER_PARTITION).parse().ok();
    }
    let own = record.headers.iter().filter(|header| !header.name.starts_with("corelane."));
    letter.headers = own.map(|header| (header.name, header.value)).collect();
    letter.header(HEADER_REPLAYED, from)
}
