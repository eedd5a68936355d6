//! `corelane consume`.

mod range;

use std::io::{BufWriter, Write};
use std::time::Duration;

use corelane_client::{Client, Consumer, ConsumerOptions, FetchedBatch, Offset, OutOfRange, StartAt};

use self::range::{Ranges, Until};
use super::connect::ConnectArgs;
use super::failure::Failure;
use super::moment::Moment;
use super::record_format::{RecordFormat, write_record};

const EXAMPLES: &str = "\
Examples:
  corelane consume orders                                  # all there is, then stop
  corelane consume orders --from end --follow              # only what comes
  corelane consume orders --from 1200 --partition 3 --count 10
  corelane consume orders --from 2026-11-24T14:00 --until 2026-11-24T15:00 --format json
  corelane consume orders --from 2h --format key-value --key-separator ': '
";

/// How long to wait for a batch before looking whether the end has been reached without one.
const END_CHECK: Duration = Duration::from_millis(100);

/// Output gathered before it is written.
const OUTPUT_BUFFER_BYTES: usize = 256 * 1024;

/// Prints records, each partition in order; stops at the end as it was at the start, unless told to follow
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The topic
    topic: String,
    /// Where to begin: beginning, end, an offset, a time (local unless it names a zone), or an age such as 2h
    #[arg(long, value_name = "PLACE", default_value = "beginning")]
    from: Moment,
    /// Where to stop, itself not included: end, an offset, a time, or an age. A time stands for the first record at or after it in each
    /// partition, here as in --from
    #[arg(long, value_name = "PLACE")]
    until: Option<Moment>,
    /// Go on with what arrives
    #[arg(long, short = 'F')]
    follow: bool,
    /// Stop after this many records
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,
    /// Only this partition; can be given several times
    #[arg(long = "partition", short = 'p', value_name = "N")]
    partitions: Vec<u32>,
    /// How a record is printed
    #[arg(long, value_enum, default_value_t = RecordFormat::Value)]
    format: RecordFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Between key and value
    #[arg(long, value_name = "TEXT", default_value = "\t")]
    key_separator: String,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    args.connect.with_client(async |client| print_records(&client, &args).await)
}

async fn print_records(client: &Client, args: &Args) -> Result<(), Failure> {
    let partition_count = client.topic(&args.topic).await?.partition_count();
    let partitions = chosen(args, partition_count)?;
    let until = Until::new(args.from, args.until, args.follow)?;
    let mut ranges = Ranges::resolve(client, &args.topic, &partitions, args.from, until).await?;
    // Retention may pass a beginning that was just looked up; an offset that was asked for must be there.
    let out_of_range = if matches!(args.from, Moment::Offset(_)) { OutOfRange::Fail } else { OutOfRange::Earliest };
    let consumer = client.consumer(ConsumerOptions { out_of_range, ..ConsumerOptions::default() });
    for (partition, begin) in ranges.begins() {
        consumer.assign(&args.topic, [partition], StartAt::Offset(begin)).await?;
    }
    let mut printer = Printer { out: BufWriter::with_capacity(OUTPUT_BUFFER_BYTES, std::io::stdout()), args, printed: 0 };
    while !ranges.all_reached() && !printer.full() {
        let batch = match consumer.try_next_batch()? {
            Some(batch) => Some(batch),
            None => {
                // Nothing is there: what was printed is shown before waiting.
                printer.flush()?;
                consumer.poll(END_CHECK).await?
            }
        };
        match batch {
            Some(batch) => print_batch(&mut printer, &mut ranges, &consumer, &batch)?,
            None => ranges.look_at_positions(|partition| consumer.position(&args.topic, partition)),
        }
    }
    printer.flush()
}

fn chosen(args: &Args, partition_count: u32) -> Result<Vec<u32>, Failure> {
    if args.partitions.is_empty() {
        return Ok((0..partition_count).collect());
    }
    let mut partitions = args.partitions.clone();
    partitions.sort_unstable();
    partitions.dedup();
    if let Some(missing) = partitions.iter().find(|partition| **partition >= partition_count) {
        return Err(Failure::NotFound(format!("no partition {missing}: topic {} has {partition_count}", args.topic)));
    }
    Ok(partitions)
}

fn print_batch(printer: &mut Printer<'_>, ranges: &mut Ranges, consumer: &Consumer, batch: &FetchedBatch) -> Result<(), Failure> {
    let partition = batch.partition();
    for record in batch.records() {
        if ranges.ends_before(partition, &record) || printer.full() {
            break;
        }
        printer.print(batch, &record)?;
    }
    ranges.read_to(partition, Offset(batch.next_offset().0));
    if ranges.reached(partition) {
        consumer.unassign(batch.topic(), [partition]);
    }
    Ok(())
}

struct Printer<'a> {
    out: BufWriter<std::io::Stdout>,
    args: &'a Args,
    printed: u64,
}

impl Printer<'_> {
    fn full(&self) -> bool {
        self.args.count.is_some_and(|count| self.printed >= count)
    }

    fn print(&mut self, batch: &FetchedBatch, record: &corelane_client::RecordView<'_>) -> Result<(), Failure> {
        let Args { key_separator, topic, .. } = self.args;
        let format = if self.args.json { RecordFormat::Json } else { self.args.format };
        self.printed += 1;
        write_record(&mut self.out, format, key_separator, topic, batch.partition(), record)
            .map_err(|error| Failure::of_output(&error))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush().map_err(|error| Failure::of_output(&error))
    }
}
