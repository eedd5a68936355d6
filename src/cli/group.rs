//! `corelane group`.

mod alter;
mod reset;

use clap::Subcommand;
use corelane_client::{Client, DescribeGroupReply, GroupPartitionDescription, GroupState, RetryPolicy};
use serde_json::{Value, json};

use super::connect::ConnectArgs;
use super::failure::Failure;
use super::table::{print, print_json, print_table};

const EXAMPLES: &str = "\
Examples:
  corelane group list
  corelane group describe billing                          # members, positions, lag, what is parked
  corelane group reset-offsets billing --topic orders --to 2026-11-24T14:00 --dry-run
  corelane group alter billing --attempts 5 --backoff 1s --exhausted dead-letter
  corelane group alter billing --resume                    # go on where the policy stopped
  corelane group delete billing
";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Names, states and sizes
    List(ListArgs),
    /// Members, positions, lag, parked records and retry policy
    Describe(DescribeArgs),
    /// Move a group without members to another place
    ResetOffsets(reset::Args),
    /// Change what the group does with records that fail, and how long its offsets are kept
    Alter(alter::Args),
    /// Remove groups without members, with their offsets
    Delete(DeleteArgs),
}

#[derive(Debug, clap::Args)]
struct ListArgs {
    /// Only groups whose id begins so
    #[arg(default_value = "")]
    prefix: String,
    /// Only groups in this state: empty, reconciling or stable
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<GroupState>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, clap::Args)]
struct DescribeArgs {
    /// The group
    group: String,
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, clap::Args)]
struct DeleteArgs {
    /// The groups
    #[arg(required = true)]
    groups: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        Command::List(args) => args.connect.with_client(async |client| list(&client, &args).await),
        Command::Describe(args) => args.connect.with_client(async |client| describe(&client, &args).await),
        Command::ResetOffsets(args) => reset::run(&args),
        Command::Alter(args) => alter::run(&args),
        Command::Delete(args) => args.connect.with_client(async |client| {
            for group in &args.groups {
                client.admin().delete_group(group).await?;
                print(format!("deleted group {group}\n").as_bytes())?;
            }
            Ok(())
        }),
    }
}

async fn list(client: &Client, args: &ListArgs) -> Result<(), Failure> {
    let groups = client.admin().list_groups(&args.prefix, args.state).await?;
    if args.json {
        let row = |group: &corelane_client::GroupListing| {
            json!({
                "group": group.group,
                "state": group.state.name(),
                "members": group.members,
                "partitions": group.partitions,
                "parked_keys": group.parked_keys,
            })
        };
        return print_json(&groups.iter().map(row).collect::<Vec<_>>());
    }
    let rows: Vec<Vec<String>> = groups
        .iter()
        .map(|group| {
            let numbers = [group.members, group.partitions, group.parked_keys].map(|number| number.to_string());
            [group.group.clone(), group.state.to_string()].into_iter().chain(numbers).collect()
        })
        .collect();
    print_table(&["GROUP", "STATE", "MEMBERS", "PARTITIONS", "PARKED KEYS"], &rows)
}

async fn describe(client: &Client, args: &DescribeArgs) -> Result<(), Failure> {
    let group = client.admin().describe_group(&args.group).await?;
    if args.json {
        return print_json(&group_json(&args.group, &group));
    }
    let mut text = format!("group {}  {}  epoch {}  coordinator shard {}\n", args.group, group.state, group.epoch, group.shard);
    for (name, value) in policy_texts(&group.retry) {
        text.push_str(&format!("  {name:<20} {value}\n"));
    }
    for topic in &group.topic_retries {
        let texts: Vec<String> = policy_texts(&topic.retry).into_iter().map(|(name, value)| format!("{name} {value}")).collect();
        text.push_str(&format!("  in {}: {}\n", topic.topic, texts.join(", ")));
    }
    print(text.as_bytes())?;
    let members: Vec<Vec<String>> = group
        .members
        .iter()
        .map(|member| {
            let owned: usize = member.owned.iter().map(|topic| topic.partitions.len()).sum();
            let instance = member.instance_id.clone().unwrap_or_default();
            vec![member.member_id.clone(), instance, member.client_id.clone(), member.host.clone(), owned.to_string()]
        })
        .collect();
    print_table(&["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"], &members)?;
    let partitions: Vec<Vec<String>> = group.partitions.iter().map(partition_row).collect();
    print_table(&["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "PARKED", "DEAD LETTERS", "MEMBER", ""], &partitions)
}

fn partition_row(partition: &GroupPartitionDescription) -> Vec<String> {
    let committed = partition.committed.as_ref().map_or("-".to_owned(), |at| at.offset.0.to_string());
    let stopped = partition.stopped.as_ref().map(|at| format!("stopped at {}: {}", at.offset.0, at.reason)).unwrap_or_default();
    vec![
        partition.name.clone(),
        partition.partition.0.to_string(),
        committed,
        partition.high_watermark.0.to_string(),
        lag(partition).map_or("-".to_owned(), |lag| lag.to_string()),
        partition.parked_records.to_string(),
        dead_letters(partition),
        partition.member_id.clone().unwrap_or_default(),
        stopped,
    ]
}

/// How many there are, and how many of them cannot be read yet.
fn dead_letters(partition: &GroupPartitionDescription) -> String {
    match partition.dead_letters_pending {
        0 => partition.dead_lettered.to_string(),
        pending => format!("{} ({pending} pending)", partition.dead_lettered),
    }
}

/// Records that the group has not committed: of those that are kept.
fn lag(partition: &GroupPartitionDescription) -> Option<u64> {
    let committed = partition.committed.as_ref()?.offset.max(partition.log_start);
    Some(partition.high_watermark.0.saturating_sub(committed.0))
}

fn group_json(name: &str, group: &DescribeGroupReply) -> Value {
    let policy = |policy: &RetryPolicy| -> Value {
        policy_texts(policy).into_iter().map(|(name, value)| (name.replace('-', "_"), Value::from(value))).collect()
    };
    let members: Vec<Value> = group
        .members
        .iter()
        .map(|member| {
            json!({
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "epoch": member.member_epoch.0,
                "topics": member.topics,
                "partitions": member.owned.iter().map(|topic| topic.partitions.len()).sum::<usize>(),
            })
        })
        .collect();
    let partitions: Vec<Value> = group
        .partitions
        .iter()
        .map(|partition| {
            json!({
                "topic": partition.name,
                "partition": partition.partition.0,
                "member_id": partition.member_id,
                "committed": partition.committed.as_ref().map(|at| at.offset.0),
                "metadata": partition.committed.as_ref().and_then(|at| at.metadata.clone()),
                "log_start": partition.log_start.0,
                "high_watermark": partition.high_watermark.0,
                "lag": lag(partition),
                "parked_keys": partition.parked_keys,
                "parked_records": partition.parked_records,
                "next_due_ms": partition.next_due_ms.map(|at| at.0),
                "dead_lettered": partition.dead_lettered,
                "dead_letters_pending": partition.dead_letters_pending,
                "skipped": partition.skipped,
                "stopped": partition.stopped.as_ref().map(|at| json!({ "offset": at.offset.0, "reason": at.reason })),
            })
        })
        .collect();
    let topics: serde_json::Map<String, Value> =
        group.topic_retries.iter().map(|topic| (topic.topic.clone(), policy(&topic.retry))).collect();
    json!({
        "group": name,
        "state": group.state.name(),
        "epoch": group.epoch.0,
        "assignor": group.assignor.name(),
        "coordinator_shard": group.shard,
        "offsets_retention_ms": group.offsets_retention_ms,
        "retry": policy(&group.retry),
        "topic_retries": topics,
        "members": members,
        "partitions": partitions,
    })
}

fn policy_texts(policy: &RetryPolicy) -> Vec<(&'static str, String)> {
    let milliseconds = |ms: u32| format!("{ms}ms");
    vec![
        ("attempts", policy.attempts_max.to_string()),
        ("backoff", milliseconds(policy.backoff_first_ms)),
        ("backoff-factor", format!("{}%", policy.backoff_factor_percent)),
        ("backoff-max", milliseconds(policy.backoff_max_ms)),
        ("jitter", format!("{}%", policy.jitter_percent)),
        ("exhausted", policy.exhausted.to_string()),
        ("dead-letter-topic", policy.dead_letter_topic.clone().unwrap_or_else(|| "{topic}.dlq.{group}".to_owned())),
    ]
}

fn state(text: &str) -> Result<GroupState, String> {
    GroupState::from_name(text).ok_or_else(|| "give empty, reconciling or stable".to_owned())
}
