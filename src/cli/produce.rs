//! `corelane produce`.

mod input;
mod report;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Duration;

use broker::config::Span;
use corelane_client::{Acks, Client, Compression, DeliveryFuture, Producer, ProducerOptions, Record};
use tokio::time::Instant;

use self::input::{Input, Message};
use self::report::Report;
use super::connect::ConnectArgs;
use super::failure::Failure;
use super::topic_options::compression;

const EXAMPLES: &str = "\
Examples:
  echo 'hello' | corelane produce greetings
  corelane produce orders --key-separator : < orders.txt        # key:value a line
  corelane produce logs --header host=web1 --compression zstd < access.log
  corelane produce images --file *.jpg                          # one record per file, the file's name as key
  yes | corelane produce load --rate 1000                       # 1000 records a second
";

/// Deliveries awaited before reading on: bounds what is remembered of records under way.
const DELIVERIES_MAX: usize = 100_000;

/// Sends each line of standard input, or each file, as a record; done when all are acknowledged
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The topic
    topic: String,
    /// Send these files, one record each, the file's name as key; `-` is standard input as one record
    #[arg(long = "file", short = 'f', value_name = "FILE", num_args = 1.., conflicts_with = "key_separator")]
    files: Vec<PathBuf>,
    /// Split each line at the first of this into key and value
    #[arg(long, value_name = "TEXT")]
    key_separator: Option<String>,
    /// The key of every record
    #[arg(long, value_name = "TEXT", conflicts_with = "key_separator")]
    key: Option<String>,
    /// A header of every record; can be given several times
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// The partition, whatever the key
    #[arg(long, value_name = "N")]
    partition: Option<u32>,
    /// Records a second at most
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    /// none, lz4 or zstd, instead of what the topic says
    #[arg(long, value_name = "KIND", value_parser = compression)]
    compression: Option<Compression>,
    /// all: on all in-sync replicas; leader: on the leader
    #[arg(long, value_name = "WHO", value_parser = acks, default_value = "all")]
    acks: Acks,
    /// How long a batch waits for more records
    #[arg(long, value_name = "TIME", default_value = "0ms")]
    linger: Span,
    /// Print the result as JSON instead of text
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(long, short = 'q')]
    quiet: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    args.connect.with_client(async |client| send_all(&client, &args).await)
}

async fn send_all(client: &Client, args: &Args) -> Result<(), Failure> {
    // A topic that does not exist is found before anything is read.
    client.topic(&args.topic).await?;
    let options =
        ProducerOptions { acks: args.acks, compression: args.compression, linger: args.linger.0, ..ProducerOptions::default() };
    let producer = client.producer(options);
    let mut input = Input::open(&args.files, args.key_separator.as_deref());
    let mut report = Report::start(args.quiet, args.files.len());
    let mut deliveries = VecDeque::new();
    let begun = Instant::now();
    let mut sent = 0_u64;
    let sending = async {
        loop {
            // With a rate, what is under way leaves and is looked at while waiting; without, reading fills the batches.
            if let Some(rate) = args.rate {
                tokio::time::sleep_until(begun + Duration::from_secs_f64(sent as f64 / rate)).await;
            }
            let Some(message) = input.next().await? else { return Ok(()) };
            deliveries.push_back(send(&producer, args, &message).await?);
            sent += 1;
            report.sent(message.value.len());
            settle(&mut deliveries, &mut report, DELIVERIES_MAX).await?;
        }
    };
    let result: Result<(), Failure> = sending.await;
    // What was accepted before a failure is still delivered and counted.
    let settled = async {
        producer.flush().await?;
        settle(&mut deliveries, &mut report, 0).await
    };
    let settled = settled.await;
    report.finish(&args.topic, args.json)?;
    result.and(settled)
}

async fn send(producer: &Producer, args: &Args, message: &Message) -> Result<DeliveryFuture, Failure> {
    let mut record = Record::to(&args.topic).value(&message.value);
    record.partition = args.partition;
    record.key = match &args.key {
        Some(key) => Some(key.as_bytes()),
        None => message.key.as_deref(),
    };
    for (name, value) in &args.headers {
        record = record.header(name, value);
    }
    Ok(producer.send(record).await?)
}

/// Takes the results that are known, and awaits the oldest while more than `most` are outstanding.
async fn settle(deliveries: &mut VecDeque<DeliveryFuture>, report: &mut Report, most: usize) -> Result<(), Failure> {
    let mut first_failure = None;
    while let Some(oldest) = deliveries.front_mut() {
        let result = match oldest.try_get() {
            Some(result) => result,
            None if deliveries.len() > most => {
                let oldest = deliveries.front_mut().expect("it was just looked at");
                oldest.await
            }
            None => break,
        };
        deliveries.pop_front();
        match result {
            Ok(delivery) => report.delivered(&delivery),
            Err(error) => {
                report.failed();
                first_failure.get_or_insert(error);
            }
        }
    }
    first_failure.map_or(Ok(()), |error| Err(error.into()))
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("give NAME=VALUE")?;
    if name.is_empty() {
        return Err("the name is empty".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "give a number of records a second".to_owned())?;
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err("it must be above 0".to_owned()) }
}

fn acks(text: &str) -> Result<Acks, String> {
    match text {
        "all" => Ok(Acks::AllInSync),
        "leader" => Ok(Acks::Leader),
        _ => Err("all and leader are known".to_owned()),
    }
}
