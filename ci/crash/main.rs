//! Real processes: `corelane serve` is killed with SIGKILL in the middle of writing, again and again, and every restart must hold
//! what was acknowledged.
//!
//! ```text
//!   serve ── load on every partition ── kill -9 ── serve (often killed once more while it recovers) ── read all ── check ──┐
//!     ▲                                                                                                                    │
//!     └──────────────────────────── next round: the same data, another number of shards ◄──────────────────────────────────┘
//! ```
//!
//! After each round, per partition: no acknowledged record is missing or elsewhere (in a relaxed topic: only the end may be
//! missing), nothing that was ever read has changed, offsets have no holes, no record is there twice, every byte is right. With idempotent
//! producers that send again what was not answered: every record is there once, in its order.
//!
//! `CORELANE_ROUNDS` sets the number of rounds, `CORELANE_SEED` the moments of the kills.

mod broker;
mod check;
mod draw;
mod load;
mod message;
mod once;
mod workers;

use std::time::Duration;

use corelane_client::{Client, Compression, Durability, TopicConfig};
use perf::broker_process::BrokerProcess;
use tokio::sync::Mutex;

use crate::check::Ledger;
use crate::draw::Draw;

/// Rounds when nothing else is asked for: a minute's work. A release is tried with many more.
const ROUNDS_DEFAULT: u64 = 5;
/// A round that takes longer hangs.
const ROUND_GUARD: Duration = Duration::from_secs(180);
const PARTITIONS: u32 = 3;

/// One broker at a time has the cores of a small machine.
static MACHINE: Mutex<()> = Mutex::const_new(());

/// The topics under load: every way in which the broker writes.
const TOPICS: [(&str, Durability, Compression); 3] = [
    ("stable", Durability::Stable, Compression::None),
    ("stable-compressed", Durability::Stable, Compression::Lz4),
    ("relaxed", Durability::Relaxed, Compression::None),
];

#[tokio::test]
async fn acknowledged_records_outlive_kill_9() {
    let _machine = MACHINE.lock().await;
    let rounds = environment("CORELANE_ROUNDS").unwrap_or(ROUNDS_DEFAULT);
    let mut draw = Draw::new(environment("CORELANE_SEED").unwrap_or(1));
    let mut ledger = Ledger::new(TOPICS.map(|(name, durability, _)| (name, durability == Durability::Stable)), PARTITIONS);

    let mut broker = broker::start();
    create_topics(&broker::client(&broker).await).await;
    for round in 0..rounds {
        let guarded = tokio::time::timeout(ROUND_GUARD, one_round(&mut broker, &mut ledger, &mut draw));
        guarded.await.unwrap_or_else(|_| panic!("round {round} hangs"));
        println!("round {round}: {ledger}");
    }

    // A stop that was asked for loses nothing either, relaxed or not.
    broker.ask_to_stop().expect("a broker told to stop ends well");
    respawn(&mut broker, 2);
    broker.wait_ready().expect("the broker starts");
    ledger.expect_everything();
    ledger.check(&broker::client(&broker).await).await;
    broker.stop().expect("a broker told to stop ends well");
}

/// The same producers go on through every kill: what they sent without an answer they send again.
#[tokio::test]
async fn idempotent_producers_leave_no_duplicate_and_no_gap_across_kill_9() {
    let _machine = MACHINE.lock().await;
    let rounds = environment("CORELANE_ROUNDS").unwrap_or(ROUNDS_DEFAULT);
    once::survive(rounds, &mut Draw::new(environment("CORELANE_SEED").unwrap_or(1))).await;
}

/// Records that keep failing, and a death now and then, of the broker or of a worker.
#[tokio::test]
async fn every_record_of_a_group_is_handled_or_a_dead_letter_whatever_dies() {
    let _machine = MACHINE.lock().await;
    let rounds = environment("CORELANE_ROUNDS").unwrap_or(ROUNDS_DEFAULT);
    workers::survive(rounds, &mut Draw::new(environment("CORELANE_SEED").unwrap_or(1))).await;
}

async fn create_topics(client: &Client) {
    for (name, durability, compression) in TOPICS {
        let config = TopicConfig { partitions: PARTITIONS, durability, compression, ..TopicConfig::default() };
        client.admin().create_topic(name, config).await.expect("a new topic");
    }
}

/// Load, kill, restart, check.
async fn one_round(broker: &mut BrokerProcess, ledger: &mut Ledger, draw: &mut Draw) {
    let acknowledgements_before_kill = 200 + draw.below(3000);
    load::until_killed(broker, ledger, acknowledgements_before_kill).await;
    let shards = 1 + draw.below(2);
    if draw.below(2) == 0 {
        // The fault is the moment of the kill, anywhere in start or recovery: nothing is waited for.
        respawn(broker, shards);
        tokio::time::sleep(Duration::from_millis(draw.below(500))).await;
        broker.kill().expect("a broker of ours can be killed");
    }
    respawn(broker, shards);
    broker.wait_ready().expect("the broker starts");
    ledger.check(&broker::client(broker).await).await;
}

fn respawn(broker: &mut BrokerProcess, shards: u64) {
    broker.respawn_with(&shards.to_string()).expect("the broker's process starts");
}

fn environment(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: a number is expected")))
}
