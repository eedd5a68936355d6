//! Redis streams.

use ::redis::AsyncConnectionConfig;
use ::redis::aio::MultiplexedConnection;

use super::PeerError;

/// The stream.
const KEY: &str = "corelane-perf";
/// Entries read back at once.
const READ_COUNT: usize = 1_000;

#[derive(Clone)]
pub(super) struct Connection(MultiplexedConnection);

impl Connection {
    pub(super) async fn open(address: &str) -> Result<Connection, PeerError> {
        let client = ::redis::Client::open(format!("redis://{address}/"))?;
        // An answer that takes long is a latency, not an error.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        Ok(Connection(client.get_multiplexed_async_connection_with_config(&config).await?))
    }

    pub(super) async fn prepare(&mut self) -> Result<String, PeerError> {
        self.remove().await?;
        let info: String = ::redis::cmd("INFO").arg("server").query_async(&mut self.0).await?;
        let version = info.lines().find_map(|line| line.strip_prefix("redis_version:")).unwrap_or("unknown").trim().to_owned();
        let mut settings = Vec::new();
        for name in ["appendonly", "appendfsync"] {
            let found: Vec<String> = ::redis::cmd("CONFIG").arg("GET").arg(name).query_async(&mut self.0).await?;
            settings.push(found.join(" "));
        }
        Ok(format!("redis {version}, {}", settings.join(", ")))
    }

    /// One pipeline: with `appendfsync always` it is answered after one fsync.
    pub(super) async fn publish(&mut self, messages: &[Vec<u8>]) -> Result<(), PeerError> {
        let mut pipe = ::redis::pipe();
        for message in messages {
            pipe.cmd("XADD").arg(KEY).arg("*").arg("d").arg(message).ignore();
        }
        Ok(pipe.query_async(&mut self.0).await?)
    }

    pub(super) async fn read_back(&mut self, take: &mut dyn FnMut(&[u8])) -> Result<(), PeerError> {
        let mut start = "-".to_owned();
        loop {
            let mut range = ::redis::cmd("XRANGE");
            range.arg(KEY).arg(&start).arg("+").arg("COUNT").arg(READ_COUNT);
            let entries: Vec<(String, Vec<Vec<u8>>)> = range.query_async(&mut self.0).await?;
            let Some((last, _)) = entries.last() else { return Ok(()) };
            start = format!("({last}");
            for (_, fields) in &entries {
                // Name, value.
                take(fields.get(1).map_or(&[], Vec::as_slice));
            }
        }
    }

    pub(super) async fn remove(&mut self) -> Result<(), PeerError> {
        Ok(::redis::cmd("DEL").arg(KEY).query_async(&mut self.0).await?)
    }
}
