//! `corelane produce`.

mod input;
mod pace;
mod report;

use std::collections::VecDeque;
use std::path::PathBuf;

use broker::config::Span;
use corelane_client::{Acks, Client, ClientError, Compression, Delivery, DeliveryFuture, Producer, ProducerOptions, Record};
use tokio::time::Instant;

use self::input::{Input, Message};
use self::pace::Pace;
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

/// Records under way by their number in the input, oldest first.
type Deliveries = VecDeque<(u64, DeliveryFuture)>;

/// Sends each line of standard input, or each file, as a record; done when all are acknowledged
///
/// A record that is refused for itself, such as one above the topic's limit, does not stop those after it; any other failure
/// does. Both are reported by line or file, and the exit code is then not 0.
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
    let producer = client.producer(ProducerOptions {
        acks: args.acks,
        compression: args.compression,
        linger: args.linger.0,
        delivery_timeout: args.connect.timeout(),
        ..ProducerOptions::default()
    });
    let mut report = Report::start(args.quiet, &args.files);
    let mut deliveries = VecDeque::new();
    let sent = send_input(&producer, args, &mut deliveries, &mut report).await;
    // What was accepted before a failure is still delivered and counted.
    producer.flush().await?;
    settle(&mut deliveries, &mut report, 0).await;
    sent.and(report.finish(&args.topic, args.json))
}

/// Reads and sends until the input ends, or something fails that the next record would meet as well.
async fn send_input(producer: &Producer, args: &Args, deliveries: &mut Deliveries, report: &mut Report) -> Result<(), Failure> {
    let mut input = Input::open(&args.files, args.key_separator.as_deref());
    let mut pace = args.rate.map(|rate| Pace::new(rate, Instant::now()));
    loop {
        let next = tokio::select! {
            biased;
            next = input.next() => next?,
            // While no input comes, a failure is seen at once.
            (number, result) = oldest(deliveries), if !deliveries.is_empty() => {
                report.settled(number, result);
                if report.is_hopeless() {
                    return Ok(());
                }
                continue;
            }
        };
        let Some(message) = next else { return Ok(()) };
        // While waiting, what is under way leaves and is answered; without a rate, reading fills the batches.
        if let Some(pace) = &mut pace {
            tokio::time::sleep_until(pace.next(Instant::now())).await;
        }
        let number = report.sent(message.value.len());
        match send(producer, args, &message).await {
            Ok(delivery) => deliveries.push_back((number, delivery)),
            Err(error) => report.failed(number, error),
        }
        settle(deliveries, report, DELIVERIES_MAX).await;
        if report.is_hopeless() {
            return Ok(());
        }
    }
}

async fn send(producer: &Producer, args: &Args, message: &Message) -> Result<DeliveryFuture, ClientError> {
    let mut record = Record::to(&args.topic).value(&message.value);
    record.partition = args.partition;
    record.key = match &args.key {
        Some(key) => Some(key.as_bytes()),
        None => message.key.as_deref(),
    };
    for (name, value) in &args.headers {
        record = record.header(name, value);
    }
    producer.send(record).await
}

/// Takes the results that are known, and awaits the oldest while more than `most` are outstanding.
async fn settle(deliveries: &mut Deliveries, report: &mut Report, most: usize) {
    while deliveries.len() > most || deliveries.front().is_some_and(|(_, oldest)| oldest.try_get().is_some()) {
        let (number, result) = oldest(deliveries).await;
        report.settled(number, result);
    }
}

/// Awaits the oldest delivery, of which there is one, and removes it. Cancelling loses nothing.
async fn oldest(deliveries: &mut Deliveries) -> (u64, Result<Delivery, ClientError>) {
    let (number, delivery) = deliveries.front_mut().expect("the caller looked");
    let settled = (*number, delivery.await);
    deliveries.pop_front();
    settled
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
