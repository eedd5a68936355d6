//! `corelane topic`.

mod delete_records;

use std::io::{BufRead, IsTerminal};

use clap::Subcommand;
use corelane_client::{Client, DescribeTopicReply, ErrorCode};
use serde_json::{Value, json};

use super::connect::ConnectArgs;
use super::failure::Failure;
use super::table::{print, print_json, print_table, size_text};
use super::topic_options::{TopicOptions, setting_texts};

const EXAMPLES: &str = "\
Examples:
  corelane topic create orders --partitions 12 --retention 7d --compression lz4
  corelane topic list --json
  corelane topic describe orders
  corelane topic alter orders --partitions 24 --retention forever
  corelane topic delete-records orders --before 2026-11-24T14:00 --dry-run
  corelane topic delete orders --yes
";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a topic
    Create(CreateArgs),
    /// Names and sizes
    List(ListArgs),
    /// Settings, offsets and leaders
    Describe(DescribeArgs),
    /// Change settings; partitions can only become more
    Alter(AlterArgs),
    /// Remove the oldest records of a topic, up to a place in it
    DeleteRecords(delete_records::Args),
    /// Remove topics with their data
    Delete(DeleteArgs),
}

#[derive(Debug, clap::Args)]
struct CreateArgs {
    /// 1 to 249 of a-z A-Z 0-9 . _ -
    name: String,
    #[command(flatten)]
    options: TopicOptions,
    /// Succeed without change when there is a topic of this name
    #[arg(long)]
    if_not_exists: bool,
    /// Only check whether it could be made
    #[arg(long)]
    validate_only: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, clap::Args)]
struct DescribeArgs {
    /// The topic
    name: String,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, clap::Args)]
struct AlterArgs {
    /// The topic
    name: String,
    #[command(flatten)]
    options: TopicOptions,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    /// The topics
    #[arg(required = true)]
    names: Vec<String>,
    /// Do not ask
    #[arg(long, short = 'y')]
    yes: bool,
    /// Succeed when there is no such topic
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::Create(args) => create(&args),
        Command::List(args) => args.connect.with_client(async |client| list(&client, args.json).await),
        Command::Describe(args) => args.connect.with_client(async |client| describe(&client, &args).await),
        Command::Alter(args) => args.connect.with_client(async |client| alter(&client, &args).await),
        Command::DeleteRecords(args) => delete_records::run(&args),
        Command::Delete(args) => delete(&args),
    }
}

fn create(args: &CreateArgs) -> Result<(), Failure> {
    let config = args.options.config().map_err(Failure::NotAllowed)?;
    args.connect.with_client(async |client| {
        let admin = client.admin();
        if args.validate_only {
            admin.validate_topic(&args.name, config).await?;
            return print(format!("topic {} can be created\n", args.name).as_bytes());
        }
        match admin.create_topic(&args.name, config).await {
            Ok(_) => print(format!("created topic {}\n", args.name).as_bytes()),
            Err(error) if args.if_not_exists && error.code() == Some(ErrorCode::TopicExists) => {
                print(format!("topic {} exists\n", args.name).as_bytes())
            }
            Err(error) => Err(error.into()),
        }
    })
}

async fn list(client: &Client, as_json: bool) -> Result<(), Failure> {
    let topics = client.admin().list_topics().await?;
    if as_json {
        let rows: Vec<Value> = topics
            .iter()
            .map(|topic| {
                json!({
                    "name": topic.name,
                    "id": topic.id.to_hex(),
                    "partitions": topic.partitions,
                    "replication_factor": topic.replication_factor,
                })
            })
            .collect();
        return print_json(&rows);
    }
    let rows: Vec<Vec<String>> = topics
        .iter()
        .map(|topic| vec![topic.name.clone(), topic.partitions.to_string(), topic.replication_factor.to_string()])
        .collect();
    print_table(&["TOPIC", "PARTITIONS", "REPLICAS"], &rows)
}

async fn describe(client: &Client, args: &DescribeArgs) -> Result<(), Failure> {
    let topic = client.admin().describe_topic(&args.name).await?;
    if args.json {
        return print_json(&topic_json(&args.name, &topic));
    }
    let mut text = format!("topic {}  id {}\n", args.name, topic.id);
    for (name, value) in setting_texts(&topic.config) {
        text.push_str(&format!("  {name:<20} {value}\n"));
    }
    print(text.as_bytes())?;
    let rows: Vec<Vec<String>> = topic
        .partitions
        .iter()
        .map(|partition| {
            let trouble = if partition.error.is_none() { String::new() } else { partition.error.to_string() };
            vec![
                partition.partition.0.to_string(),
                format!("{}/{}", partition.leader, partition.shard),
                partition.log_start.0.to_string(),
                partition.high_watermark.0.to_string(),
                size_text(partition.size_bytes),
                partition.segments.to_string(),
                trouble,
            ]
        })
        .collect();
    print_table(&["PARTITION", "BROKER/SHARD", "START", "END", "SIZE", "SEGMENTS", ""], &rows)
}

fn topic_json(name: &str, topic: &DescribeTopicReply) -> Value {
    let settings: serde_json::Map<String, Value> =
        setting_texts(&topic.config).into_iter().map(|(name, value)| (name.replace('-', "_"), value.into())).collect();
    let partitions: Vec<Value> = topic
        .partitions
        .iter()
        .map(|partition| {
            json!({
                "partition": partition.partition.0,
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch.0,
                "shard": partition.shard,
                "log_start": partition.log_start.0,
                "high_watermark": partition.high_watermark.0,
                "log_end": partition.log_end.0,
                "size_bytes": partition.size_bytes,
                "segments": partition.segments,
                "error": (!partition.error.is_none()).then(|| partition.error.to_string()),
            })
        })
        .collect();
    json!({
        "name": name,
        "id": topic.id.to_hex(),
        "created_ms": topic.created_ms,
        "settings": settings,
        "partitions": partitions,
    })
}

async fn alter(client: &Client, args: &AlterArgs) -> Result<(), Failure> {
    let changes = args.options.changes();
    if changes == corelane_client::TopicConfigChanges::default() {
        return Err(Failure::Usage("nothing to change: give at least one setting".to_owned()));
    }
    let config = client.admin().alter_topic(&args.name, changes).await?;
    let mut text = format!("altered topic {}\n", args.name);
    for (name, value) in setting_texts(&config) {
        text.push_str(&format!("  {name:<20} {value}\n"));
    }
    print(text.as_bytes())
}

fn delete(args: &DeleteArgs) -> Result<(), Failure> {
    if !args.yes {
        can_ask()?;
        ask(&format!("Delete {} with all data?", args.names.join(", ")))?;
    }
    args.connect.with_client(async |client| {
        for name in &args.names {
            match client.admin().delete_topic(name).await {
                Ok(()) => print(format!("deleted topic {name}\n").as_bytes())?,
                Err(error) if args.if_exists && error.code() == Some(ErrorCode::UnknownTopicOrPartition) => {
                    print(format!("no topic {name}\n").as_bytes())?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    })
}

/// Data that is deleted does not come back: a person is asked, a script says so in advance.
fn can_ask() -> Result<(), Failure> {
    match std::io::stdin().is_terminal() {
        true => Ok(()),
        false => Err(Failure::Usage("add --yes to delete without being asked".to_owned())),
    }
}

fn ask(question: &str) -> Result<(), Failure> {
    eprint!("{question} Type yes: ");
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::Failed(error.to_string()))?;
    match answer.trim() {
        "yes" => Ok(()),
        _ => Err(Failure::Failed("not deleted".to_owned())),
    }
}
