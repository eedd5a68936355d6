//! The broker under test: the process that `corelane perf` starts too, and a client of it.

use std::path::Path;
use std::time::Duration;

use corelane_client::{Client, ClientOptions};
use perf::broker_process::{BrokerOptions, BrokerProcess};

/// A running broker with two shards, its data in a new folder.
pub(crate) fn start() -> BrokerProcess {
    let options = BrokerOptions {
        program: env!("CARGO_BIN_EXE_corelane").into(),
        // Not the system's temporary folder: that may be in memory, where direct I/O does not work.
        data_parent: Path::new(env!("CARGO_TARGET_TMPDIR")).to_owned(),
        shards: "2".to_owned(),
        housekeeping_cpu: None,
        more_config: String::new(),
    };
    BrokerProcess::start(options).expect("the broker starts")
}

/// A client of a broker that answers.
pub(crate) async fn client(broker: &BrokerProcess) -> Client {
    let options = ClientOptions {
        connect_timeout: Duration::from_secs(5),
        request_timeout: Duration::from_secs(30),
        ..ClientOptions::new([broker.address().to_string()])
    };
    Client::connect(options).await.expect("a broker that answers takes a client")
}
