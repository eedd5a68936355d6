//! `corelane dlq replay`.

use std::collections::BTreeMap;
use std::time::Duration;

use corelane_client::{Change, Client, ErrorCode, Offset, OffsetsRetention, ProducerOptions, Record, RecordView, dead_letter};
use tokio::time::Instant;

use super::letter::{Filter, text};
use super::{Starts, each};
use crate::cli::connect::ConnectArgs;
use crate::cli::failure::Failure;
use crate::cli::table::print;

/// The group whose offsets say how far each dead-letter topic was replayed as a whole.
const REPLAYED: &str = "corelane.dlq-replay";
/// How far a replay has come is saved this often: one that is killed repeats at most what it sent since.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// Says where a replayed record comes from.
const HEADER_REPLAYED: &str = "corelane.replayed_from";

/// Sends dead letters on, those that have all of their record. A whole replay begins where the last one ended, also when that was
/// interrupted: a second of what it sent may come again. One with a filter looks at all there are
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
    let mut progress = Progress::default();
    if is_whole && !args.dry_run {
        // Dead letters stay until somebody drops them: so does the knowledge of which were sent.
        client.admin().alter_group(REPLAYED, None, Change::Keep, Change::Set(OffsetsRetention::Forever), false).await?;
        progress.saved = Some(Instant::now());
    }
    let sent = send_all(client, args, &starts, &mut progress).await;
    // After an error too: what was sent is not sent again.
    let saved = progress.save(client, &args.topic).await;
    sent?;
    saved?;
    let Progress { sent, incomplete, .. } = progress;
    let verb = if args.dry_run { "would be sent" } else { "sent" };
    let lost = if incomplete == 0 {
        String::new()
    } else {
        format!(", {incomplete} left out: the dead letter does not have all of its record")
    };
    print(format!("{sent} records {verb}{lost}\n").as_bytes())
}

/// How far a replay has come.
#[derive(Debug, Default)]
struct Progress {
    sent: u64,
    /// Dead letters without their record, or without all of it.
    incomplete: u64,
    /// Partitions that have come further since that was saved, and up to where.
    unsaved: BTreeMap<u32, Option<Offset>>,
    /// When it was saved last; `None` when it is not to be.
    saved: Option<Instant>,
}

impl Progress {
    /// Everything of a partition before `offset` is done.
    async fn reached(&mut self, client: &Client, topic: &str, partition: u32, offset: Offset) -> Result<(), Failure> {
        self.unsaved.insert(partition, Some(offset));
        if self.saved.is_some_and(|saved| saved.elapsed() >= SAVE_INTERVAL) { self.save(client, topic).await } else { Ok(()) }
    }

    async fn save(&mut self, client: &Client, topic: &str) -> Result<(), Failure> {
        if self.saved.is_some() && !self.unsaved.is_empty() {
            client.admin().alter_group_offsets(REPLAYED, topic, &self.unsaved, false).await?;
            self.unsaved.clear();
            self.saved = Some(Instant::now());
        }
        Ok(())
    }
}

async fn send_all(client: &Client, args: &Args, starts: &Starts, progress: &mut Progress) -> Result<(), Failure> {
    let producer = client.producer(ProducerOptions::default());
    let begun = Instant::now();
    let read = each(client, &args.topic, starts, async |partition, record| {
        if !args.filter.admits(&record) {
            return Ok(true);
        }
        if is_whole(&record) {
            if !args.dry_run {
                if let Some(rate) = args.rate {
                    tokio::time::sleep_until(begun + Duration::from_secs_f64(progress.sent as f64 / rate)).await;
                }
                let from = format!("{}/{partition}/{}", args.topic, record.offset.0);
                let target = args.to.as_deref().unwrap_or_else(|| text(&record, dead_letter::HEADER_TOPIC));
                // One after the other: the order of the dead letters stays.
                producer.send(letter(&record, target, &from, args.to.is_none())).await?.await?;
            }
            progress.sent += 1;
        } else {
            progress.incomplete += 1;
        }
        progress.reached(client, &args.topic, partition, record.offset.plus(1)).await?;
        Ok(true)
    })
    .await?;
    // What has no records at its end is done too.
    progress.unsaved.extend(read.into_iter().map(|(partition, offset)| (partition, Some(offset))));
    Ok(())
}

/// Whether a dead letter has all of its record.
fn is_whole(record: &RecordView<'_>) -> bool {
    let lacks = [dead_letter::HEADER_RECORD_GONE, dead_letter::HEADER_LEFT_OUT];
    lacks.iter().all(|name| text(record, name).is_empty())
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
