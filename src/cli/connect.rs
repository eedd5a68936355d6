//! Which broker to talk to, and the runtime to talk on.

use std::time::Duration;

use corelane_client::{BROKER_DEFAULT, Client, ClientOptions};

use super::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct ConnectArgs {
    /// Brokers to start from, separated by commas; one that answers is enough
    #[arg(
        long = "broker",
        short = 'b',
        value_name = "HOST:PORT",
        env = "CORELANE_BROKER",
        value_delimiter = ',',
        default_value = BROKER_DEFAULT
    )]
    brokers: Vec<String>,
    /// Time for an operation with its retries
    #[arg(long, value_name = "TIME", default_value = "60s")]
    timeout: broker::config::Span,
}

impl ConnectArgs {
    /// Time for an operation with its retries.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.0.max(Duration::from_millis(1))
    }

    /// Connects and does `work` on a runtime of one thread.
    pub(crate) fn with_client<T>(&self, work: impl AsyncFnOnce(Client) -> Result<T, Failure>) -> Result<T, Failure> {
        let timeout = self.timeout();
        let options = ClientOptions {
            client_id: "corelane-cli".into(),
            connect_timeout: timeout.min(Duration::from_secs(5)),
            request_timeout: timeout.min(Duration::from_secs(30)),
            operation_timeout: timeout,
            ..ClientOptions::new(&self.brokers)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Failed(format!("cannot start the runtime: {error}")))?;
        runtime.block_on(async { work(Client::connect(options).await?).await })
    }
}
