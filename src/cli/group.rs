//! `corelane group`.

mod reset;

use broker::config::Span;
use clap::Subcommand;
use corelane_client::{
    Change, Client, DescribeGroupReply, Exhausted, GroupPartitionDescription, GroupState, RetryPolicy, RetryPolicyChanges,
};
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
    Alter(AlterArgs),
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
struct AlterArgs {
    /// The group
    group: String,
    /// Only for records of this topic
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// How often a record is tried before it is given up
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,
    /// Pause before the second attempt
    #[arg(long, value_name = "TIME")]
    backoff: Option<Span>,
    /// Longest pause
    #[arg(long, value_name = "TIME")]
    backoff_max: Option<Span>,
    /// What each further pause is to the one before, in percent: 200 doubles
    #[arg(long, value_name = "PERCENT")]
    backoff_factor: Option<u32>,
    /// How much pauses differ by chance, in percent
    #[arg(long, value_name = "PERCENT")]
    jitter: Option<u32>,
    /// What becomes of a record whose attempts are used up: dead-letter, skip or stop (its partition, until --resume)
    #[arg(long, value_name = "WHAT", value_parser = exhausted)]
    exhausted: Option<Exhausted>,
    /// Where dead letters go; {topic} and {group} stand for the names
    #[arg(long, value_name = "TOPIC")]
    dead_letter_topic: Option<String>,
    /// The topic's retry policy is the group's again; without --topic, the group's is the default again
    #[arg(long)]
    default_retry: bool,
    /// How long offsets are kept when the group has no members
    #[arg(long, value_name = "TIME")]
    offsets_retention: Option<Span>,
    /// Partitions that the policy stopped go on with the record that stopped them
    #[arg(long)]
    resume: bool,
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
        Command::Alter(args) => args.connect.with_client(async |client| alter(&client, &args).await),
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

async fn alter(client: &Client, args: &AlterArgs) -> Result<(), Failure> {
    let milliseconds = |span: Option<Span>| span.map(|span| u32::try_from(span.0.as_millis()).unwrap_or(u32::MAX));
    let changes = RetryPolicyChanges {
        attempts_max: args.attempts,
        backoff_first_ms: milliseconds(args.backoff),
        backoff_factor_percent: args.backoff_factor,
        backoff_max_ms: milliseconds(args.backoff_max),
        jitter_percent: args.jitter,
        exhausted: args.exhausted,
        dead_letter_topic: args.dead_letter_topic.clone().map_or(Change::Keep, Change::Set),
    };
    let is_changed = changes != RetryPolicyChanges::default();
    if args.default_retry && is_changed {
        return Err(Failure::Usage("--default-retry takes a policy back: leave out the settings of one".to_owned()));
    }
    if !is_changed && !args.default_retry && !args.resume && args.offsets_retention.is_none() {
        return Err(Failure::Usage("nothing to change: give at least one setting, or --resume".to_owned()));
    }
    let retry = match (args.default_retry, is_changed) {
        (true, _) => Change::Unset,
        (false, true) => Change::Set(changes),
        (false, false) => Change::Keep,
    };
    let retention =
        args.offsets_retention.map_or(Change::Keep, |span| Change::Set(u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX)));
    let reply = client.admin().alter_group(&args.group, args.topic.as_deref(), retry, retention, args.resume).await?;
    let mut text = format!("altered group {}\n", args.group);
    for (name, value) in policy_texts(&reply.retry) {
        text.push_str(&format!("  {name:<20} {value}\n"));
    }
    print(text.as_bytes())
}

fn state(text: &str) -> Result<GroupState, String> {
    GroupState::from_name(text).ok_or_else(|| "give empty, reconciling or stable".to_owned())
}

fn exhausted(text: &str) -> Result<Exhausted, String> {
    Exhausted::from_name(text).ok_or_else(|| "give dead-letter, skip or stop".to_owned())
}
