//! `corelane dlq list`.

use std::collections::{BTreeMap, BTreeSet};

use corelane_client::{Admin, Client, ErrorCode};
use serde_json::{Value, json};

use crate::cli::connect::ConnectArgs;
use crate::cli::failure::Failure;
use crate::cli::table::{print_json, print_table, size_text};

/// What topics have in their names that no policy names.
const DEFAULT_PART: &str = ".dlq.";

/// Lists the topics to which the policies of groups send dead letters, for each topic that a group has positions or a policy of its own in; and
/// all with `.dlq.` in their names, whose groups may be gone. One that a policy named before it was changed, or of a group that was
/// deleted, is found by that part of its name alone
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print a JSON array
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

struct DeadLetterTopic {
    name: String,
    /// Whose dead letters it gets now.
    groups: Vec<String>,
    records: u64,
    size_bytes: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let found = args.connect.with_client(async |client| find(&client).await)?;
    if args.json {
        let row = |topic: &DeadLetterTopic| {
            let DeadLetterTopic { name, groups, records, size_bytes } = topic;
            json!({ "topic": name, "groups": groups, "records": records, "size_bytes": size_bytes })
        };
        return print_json(&found.iter().map(row).collect::<Vec<Value>>());
    }
    let row = |topic: DeadLetterTopic| {
        vec![topic.name, topic.records.to_string(), size_text(topic.size_bytes), topic.groups.join(", ")]
    };
    print_table(&["DEAD-LETTER TOPIC", "RECORDS", "SIZE", "GROUPS"], &found.into_iter().map(row).collect::<Vec<_>>())
}

async fn find(client: &Client) -> Result<Vec<DeadLetterTopic>, Failure> {
    let admin = client.admin();
    let mut groups = groups_by_topic(&admin).await?;
    let mut found = Vec::new();
    for topic in admin.list_topics().await? {
        let groups = groups.remove(&topic.name);
        if groups.is_none() && !topic.name.contains(DEFAULT_PART) {
            continue;
        }
        let described = admin.describe_topic(&topic.name).await?;
        found.push(DeadLetterTopic {
            name: topic.name,
            groups: groups.unwrap_or_default().into_iter().collect(),
            records: described.partitions.iter().map(|part| part.high_watermark.0.saturating_sub(part.log_start.0)).sum(),
            size_bytes: described.partitions.iter().map(|part| part.size_bytes).sum(),
        });
    }
    Ok(found)
}

/// Names of dead-letter topics, of which some may not be there yet, and the groups whose policies say so.
async fn groups_by_topic(admin: &Admin) -> Result<BTreeMap<String, BTreeSet<String>>, Failure> {
    let mut groups: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for listing in admin.list_groups("", None).await? {
        let described = match admin.describe_group(&listing.group).await {
            Ok(described) => described,
            // It was deleted since it was listed.
            Err(error) if error.code() == Some(ErrorCode::GroupNotFound) => continue,
            Err(error) => return Err(error.into()),
        };
        let own: BTreeMap<&str, _> = described.topic_retries.iter().map(|topic| (topic.topic.as_str(), &topic.retry)).collect();
        // A topic that was deleted has no name.
        let read = described.partitions.iter().map(|partition| partition.name.as_str()).filter(|name| !name.is_empty());
        for topic in own.keys().copied().chain(read).collect::<BTreeSet<&str>>() {
            let policy = own.get(topic).copied().unwrap_or(&described.retry);
            let name = policy.dead_letter_topic_or_default(topic, &listing.group);
            groups.entry(name).or_default().insert(listing.group.clone());
        }
    }
    Ok(groups)
}
