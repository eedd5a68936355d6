//! The client: connections and metadata, shared by its producers, consumers and admins.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::Rng;
use tokio::time::Instant;
use wire::{ErrorCode, MetadataRequest, Request, limits::TOPICS_PER_REQUEST_MAX};

use crate::admin::Admin;
use crate::consumer::Consumer;
use crate::core::backoff::Backoff;
use crate::core::cluster_map::{ClusterMap, Target, TopicInfo};
use crate::error::{ClientError, ErrorKind, Result};
use crate::group::GroupConsumer;
use crate::options::{ClientOptions, ConsumerOptions, GroupOptions, ProducerOptions};
use crate::producer::Producer;
use crate::transport::{Connection, ConnectionPool, Frame};

/// A connected client. Cloning is cheap, clones share connections and metadata.
///
/// ```no_run
/// # async fn example() -> corelane_client::Result<()> {
/// use corelane_client::{Client, ClientOptions};
/// let client = Client::connect(ClientOptions::new(["127.0.0.1:7311"])).await?;
/// for topic in client.admin().list_topics().await? {
///     println!("{topic:?}");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<ClientShared>,
}

impl Client {
    /// Connects to the first address that answers and learns the cluster from it.
    ///
    /// # Errors
    /// No address answers ([`ErrorKind::Connect`]), or what answers does not speak the protocol.
    pub async fn connect(options: ClientOptions) -> Result<Self> {
        let pool = ConnectionPool::new(options.clone());
        let shared =
            Arc::new(ClientShared { options, pool, map: Mutex::default(), refreshing: tokio::sync::Mutex::new(Instant::now()) });
        shared.refresh_once(&[]).await.map_err(|error| error.during("connect"))?;
        Ok(Self { shared })
    }

    /// A producer with its own batches and memory.
    pub fn producer(&self, options: ProducerOptions) -> Producer {
        Producer::start(Arc::clone(&self.shared), options)
    }

    /// A consumer, with nothing assigned yet.
    pub fn consumer(&self, options: ConsumerOptions) -> Consumer {
        Consumer::start(Arc::clone(&self.shared), options)
    }

    /// A member of a consumer group. It joins at once, in the background.
    pub fn group_consumer(&self, options: GroupOptions) -> GroupConsumer {
        GroupConsumer::start(Arc::clone(&self.shared), options)
    }

    /// Topics, offsets, cluster.
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::clone(&self.shared))
    }

    /// What metadata says of a topic, from the cache when it is there.
    ///
    /// # Errors
    /// The topic does not exist, or no broker answers.
    pub async fn topic(&self, name: &str) -> Result<Arc<TopicInfo>> {
        self.shared.topic(name).await
    }
}

pub(crate) struct ClientShared {
    options: ClientOptions,
    pool: ConnectionPool,
    map: Mutex<Arc<ClusterMap>>,
    /// When metadata was last asked for; held while asking, so that those who find the same thing stale ask once.
    refreshing: tokio::sync::Mutex<Instant>,
}

impl ClientShared {
    pub(crate) fn options(&self) -> &ClientOptions {
        &self.options
    }

    pub(crate) fn pool(&self) -> &ConnectionPool {
        &self.pool
    }

    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(self.options.backoff_first, self.options.backoff_max)
    }

    /// The picture of now.
    pub(crate) fn map(&self) -> Arc<ClusterMap> {
        Arc::clone(&self.map.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) async fn topic(&self, name: &str) -> Result<Arc<TopicInfo>> {
        if let Some(topic) = self.map().topic(name) {
            return Ok(Arc::clone(topic));
        }
        let missing_after = Instant::now() + self.options.unknown_topic_timeout;
        let found = self.retrying("find topic", name, async || {
            self.refresh_once(&[name.to_owned()]).await?;
            let unknown = || ClientError::broker(ErrorCode::UnknownTopicOrPartition, "find topic", name, None);
            match self.map().topic(name) {
                Some(topic) => Ok(Ok(Arc::clone(topic))),
                None if Instant::now() < missing_after => Err(unknown()),
                None => Ok(Err(unknown())),
            }
        });
        found.await?
    }

    /// Drops what is known of a topic that turned out to be stale.
    pub(crate) fn forget(&self, name: &str) {
        let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
        *map = Arc::new(map.without(name));
    }

    /// Asks for the brokers and for the metadata of `topics` unless someone else asked for something since `stale_since`; whether it asked.
    pub(crate) async fn refresh(&self, topics: &[String], stale_since: Instant) -> Result<bool> {
        let asked_at = *self.refreshing.lock().await;
        if asked_at > stale_since {
            return Ok(false);
        }
        self.refresh_once(topics).await.map(|()| true)
    }

    async fn refresh_once(&self, topics: &[String]) -> Result<()> {
        let mut asked_at = self.refreshing.lock().await;
        let now = Instant::now();
        let mut left = topics;
        loop {
            let asked = &left[..left.len().min(TOPICS_PER_REQUEST_MAX)];
            let request = MetadataRequest { topics: Some(asked.to_vec()), since_version: 0, after: None, limit: 0 };
            let (reply, _) = self.call_any("read metadata", &request).await?;
            if reply.error != ErrorCode::None {
                return Err(ClientError::broker(reply.error, "read metadata", "", reply.message.as_deref()));
            }
            // What does not fit one reply is asked for again.
            let answered = if reply.more { reply.topics.len() } else { asked.len() };
            if answered > asked.len() || (answered == 0 && !asked.is_empty()) {
                let cause = format!("{} topics were answered of {}, and there should be more", reply.topics.len(), asked.len());
                return Err(ClientError::new(ErrorKind::Protocol, "read metadata", "", cause));
            }
            // One writer at a time: `refreshing` is held.
            let next = Arc::new(self.map().updated(Some(&asked[..answered]), &reply));
            *self.map.lock().unwrap_or_else(PoisonError::into_inner) = next;
            left = &left[answered..];
            if left.is_empty() {
                *asked_at = now;
                return Ok(());
            }
        }
    }

    /// One request to any broker that answers, without retries.
    pub(crate) async fn call_any<R: Request>(&self, operation: &'static str, request: &R) -> Result<(R::Reply, Frame)> {
        let connection = match self.pool.any_connection() {
            Some(connection) => connection,
            None => self.pool.connect_any(&self.addresses()).await.map_err(|error| error.during(operation))?,
        };
        connection.call(operation, request, Vec::new(), self.options.request_timeout)?.await
    }

    /// The addresses given, then those learnt.
    fn addresses(&self) -> Vec<String> {
        let mut addresses = self.options.brokers.clone();
        for broker in self.map().brokers() {
            let address = broker.address();
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
    }

    /// The connection to a shard of a broker, opened if need be.
    pub(crate) async fn connect(&self, target: Target) -> Result<Arc<Connection>> {
        let address = self.map().broker(target.broker).map(crate::core::cluster_map::BrokerInfo::address);
        let unknown = || ClientError::new(ErrorKind::Connect, "connect", "", format!("broker {} is not known", target.broker));
        self.pool.connect(target, &address.ok_or_else(unknown)?).await
    }

    /// Does `attempt` until it succeeds, fails for good, or the time of an operation is over.
    pub(crate) async fn retrying<T>(
        &self,
        operation: &'static str,
        place: &str,
        mut attempt: impl AsyncFnMut() -> Result<T>,
    ) -> Result<T> {
        let end = Instant::now() + self.options.operation_timeout;
        let mut failures = 0;
        loop {
            let error = match attempt().await {
                Ok(value) => return Ok(value),
                Err(error) => error.during(operation),
            };
            failures += 1;
            let delay = self.backoff().delay(failures, random());
            if !error.retryable() {
                return Err(error);
            }
            if Instant::now() + delay >= end {
                let error = if error.place().contains(place) { error } else { error.at(place) };
                return Err(error.after_retries(failures));
            }
            tracing::debug!(%error, ?delay, "retrying");
            tokio::time::sleep(delay).await;
        }
    }

    /// The wait between two looks at metadata nobody complained about.
    pub(crate) fn metadata_age_max(&self) -> Duration {
        self.options.metadata_age_max
    }
}

/// A number nobody can guess, to spread clients that failed together.
pub(crate) fn random() -> u64 {
    rand::rng().next_u64()
}
