//! `corelane cluster`.

use clap::Subcommand;
use corelane_client::DescribeClusterReply;
use serde_json::{Value, json};

use super::connect::ConnectArgs;
use super::failure::Failure;
use super::table::{print, print_json, print_table, size_text};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Brokers, their shards, and what each holds
    Describe(DescribeArgs),
}

#[derive(Debug, clap::Args)]
struct DescribeArgs {
    /// Print a JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let Command::Describe(args) = &args.command;
    let cluster = args.connect.with_client(async |client| Ok(client.admin().describe_cluster().await?))?;
    if args.json {
        return print_json(&cluster_json(&cluster));
    }
    let summary = format!(
        "cluster {}  controller {}  topics {}  partitions {}\n",
        hex(&cluster.cluster_id),
        cluster.controller,
        cluster.topics,
        cluster.partitions
    );
    print(summary.as_bytes())?;
    let mut rows = Vec::new();
    for broker in &cluster.brokers {
        for shard in &broker.shards {
            rows.push(vec![
                broker.id.to_string(),
                format!("{}:{}", broker.host, broker.port),
                shard.shard.to_string(),
                shard.cpu.map_or_else(|| "-".to_owned(), |cpu| cpu.to_string()),
                shard.partitions.to_string(),
                shard.connections.to_string(),
                size_text(shard.log_bytes),
                size_text(shard.disk_available_bytes),
                shard.disk.clone(),
            ]);
        }
    }
    print_table(&["BROKER", "ADDRESS", "SHARD", "CPU", "PARTITIONS", "CONNECTIONS", "LOG", "FREE", "DISK"], &rows)
}

fn cluster_json(cluster: &DescribeClusterReply) -> Value {
    let brokers: Vec<Value> = cluster
        .brokers
        .iter()
        .map(|broker| {
            let shards: Vec<Value> = broker
                .shards
                .iter()
                .map(|shard| {
                    json!({
                        "shard": shard.shard,
                        "cpu": shard.cpu,
                        "disk": shard.disk,
                        "partitions": shard.partitions,
                        "connections": shard.connections,
                        "log_bytes": shard.log_bytes,
                        "disk_available_bytes": shard.disk_available_bytes,
                    })
                })
                .collect();
            json!({
                "id": broker.id,
                "host": broker.host,
                "port": broker.port,
                "server": broker.server,
                "uptime_ms": broker.uptime_ms,
                "shards": shards,
            })
        })
        .collect();
    json!({
        "cluster_id": hex(&cluster.cluster_id),
        "controller": cluster.controller,
        "topics": cluster.topics,
        "partitions": cluster.partitions,
        "brokers": brokers,
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
