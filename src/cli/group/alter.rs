//! `corelane group alter`.

use std::str::FromStr;

use broker::config::Span;
use corelane_client::{Change, Client, Exhausted, OffsetsRetention, RetryPolicyChanges};

use super::policy_texts;
use crate::cli::connect::ConnectArgs;
use crate::cli::failure::Failure;
use crate::cli::table::print;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
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
    /// How long offsets are kept when the group has no members, such as 30d; forever keeps them, default does what the broker is configured to do
    #[arg(long, value_name = "TIME")]
    offsets_retention: Option<Retention>,
    /// Partitions that the policy stopped go on with the record that stopped them
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// How long offsets are kept from now on.
#[derive(Clone, Copy, Debug)]
struct Retention(Change<OffsetsRetention>);

impl FromStr for Retention {
    type Err = <Span as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Retention(match text {
            "default" => Change::Unset,
            "forever" => Change::Set(OffsetsRetention::Forever),
            _ => {
                let span: Span = text.parse()?;
                Change::Set(OffsetsRetention::Ms(u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX)))
            }
        }))
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    args.connect.with_client(async |client| alter(&client, args).await)
}

async fn alter(client: &Client, args: &Args) -> Result<(), Failure> {
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
    let retention = args.offsets_retention.map_or(Change::Keep, |retention| retention.0);
    let reply = client.admin().alter_group(&args.group, args.topic.as_deref(), retry, retention, args.resume).await?;
    let mut text = format!("altered group {}\n", args.group);
    for (name, value) in policy_texts(&reply.retry) {
        text.push_str(&format!("  {name:<20} {value}\n"));
    }
    print(text.as_bytes())
}

fn exhausted(text: &str) -> Result<Exhausted, String> {
    Exhausted::from_name(text).ok_or_else(|| "give dead-letter, skip or stop".to_owned())
}
