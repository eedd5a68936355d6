//! The client against a broker that lives in the test: real sockets, a log in memory, faults on request.
#![expect(clippy::unwrap_used, reason = "a test stops at the first thing that fails")]

mod admin;
mod consume;
mod group;
mod hostile;
mod mock;
mod produce;
mod restart;

use std::time::Duration;

use corelane_client::{Client, ClientOptions};

/// How long a test may hang before it counts as failed; no test depends on how long things take below that.
const HANG_GUARD: Duration = Duration::from_secs(60);

/// Runs a scenario on a runtime of its own, with the hang guard.
fn run<T>(scenario: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(HANG_GUARD, scenario).await.expect("the scenario hangs") })
}

/// Options with short waits.
fn options(broker: &mock::Broker) -> ClientOptions {
    ClientOptions {
        backoff_first: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
        unknown_topic_timeout: Duration::ZERO,
        ..ClientOptions::new([broker.address()])
    }
}

async fn connect(broker: &mock::Broker) -> Client {
    Client::connect(options(broker)).await.unwrap()
}
