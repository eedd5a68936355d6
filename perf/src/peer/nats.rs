//! NATS JetStream.

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{Config, StorageType};
use async_nats::jetstream::{self, Context};
use futures_util::StreamExt;
use tokio::sync::Mutex;

use super::PeerError;

/// The stream, and its only subject.
const STREAM: &str = "corelane-perf";
const SUBJECT: &str = "corelane-perf.messages";

pub(super) struct Connection {
    client: async_nats::Client,
    context: Context,
    /// Held while a batch is sent: batches are sent in the order in which they ask for it, and do not mix.
    sending: Mutex<()>,
}

fn refused(error: impl std::fmt::Display) -> PeerError {
    PeerError::Nats(error.to_string())
}

impl Connection {
    pub(super) async fn open(address: &str) -> Result<Connection, PeerError> {
        let client = async_nats::connect(address).await.map_err(refused)?;
        let context = jetstream::new(client.clone());
        Ok(Connection { client, context, sending: Mutex::new(()) })
    }

    /// How often it syncs is the server's setting, which it does not tell.
    pub(super) async fn prepare(&self) -> Result<String, PeerError> {
        if self.context.get_stream(STREAM).await.is_ok() {
            self.remove().await?;
        }
        let config = Config {
            name: STREAM.to_owned(),
            subjects: vec![SUBJECT.to_owned()],
            storage: StorageType::File,
            num_replicas: 1,
            ..Config::default()
        };
        self.context.create_stream(config).await.map_err(refused)?;
        Ok(format!("nats-server {}, JetStream, file storage, 1 replica", self.client.server_info().version))
    }

    /// All are sent before the first acknowledgement is awaited.
    pub(super) async fn publish(&self, messages: Vec<Vec<u8>>) -> Result<(), PeerError> {
        let sending = self.sending.lock().await;
        let mut acknowledgements = Vec::with_capacity(messages.len());
        for message in messages {
            acknowledgements.push(self.context.publish(SUBJECT, message.into()).await.map_err(refused)?);
        }
        drop(sending);
        for acknowledgement in acknowledgements {
            acknowledgement.await.map_err(refused)?;
        }
        Ok(())
    }

    pub(super) async fn read_back(&self, take: &mut dyn FnMut(&[u8])) -> Result<(), PeerError> {
        let mut stream = self.context.get_stream(STREAM).await.map_err(refused)?;
        let count = stream.info().await.map_err(refused)?.state.messages;
        let config = pull::Config { ack_policy: AckPolicy::None, ..pull::Config::default() };
        let consumer = stream.create_consumer(config).await.map_err(refused)?;
        let mut messages = consumer.messages().await.map_err(refused)?;
        for _ in 0..count {
            let Some(message) = messages.next().await else { break };
            take(&message.map_err(refused)?.payload);
        }
        Ok(())
    }

    pub(super) async fn remove(&self) -> Result<(), PeerError> {
        self.context.delete_stream(STREAM).await.map(drop).map_err(refused)
    }
}
