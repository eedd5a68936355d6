//! Topics, offsets, cluster: what operators and deployment programs do.

mod partitions;

use std::sync::Arc;

use wire::{
    AlterTopicRequest, CreateTopicRequest, DeleteTopicRequest, DescribeClusterReply, DescribeClusterRequest,
    DescribeConfigRequest, DescribeTopicReply, DescribeTopicRequest, ErrorCode, ListTopicsRequest, TopicConfig,
    TopicConfigChanges, TopicId, TopicListing,
};

pub use self::partitions::PartitionOffset;
use crate::client::ClientShared;
use crate::error::{ClientError, ErrorKind, Result};

/// Administration. Every operation retries what a retry can help, for up to `operation_timeout`.
///
/// ```no_run
/// # async fn example(client: corelane_client::Client) -> corelane_client::Result<()> {
/// use corelane_client::TopicConfig;
/// let admin = client.admin();
/// admin.create_topic("orders", TopicConfig { partitions: 12, ..TopicConfig::default() }).await?;
/// let topic = admin.describe_topic("orders").await?;
/// assert_eq!(topic.partitions.len(), 12);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Admin {
    client: Arc<ClientShared>,
}

impl Admin {
    pub(crate) fn new(client: Arc<ClientShared>) -> Self {
        Self { client }
    }

    /// Makes a topic and returns its identity. When a first attempt was lost on its way back, the second one finds the topic
    /// there: the error is then `TopicExists`.
    ///
    /// # Errors
    /// The name or the configuration is not allowed, or the name is taken.
    pub async fn create_topic(&self, name: &str, config: TopicConfig) -> Result<TopicId> {
        self.create(name, config, false).await
    }

    /// Checks whether a topic could be made, without making it.
    ///
    /// # Errors
    /// As [`Admin::create_topic`].
    pub async fn validate_topic(&self, name: &str, config: TopicConfig) -> Result<()> {
        self.create(name, config, true).await.map(drop)
    }

    async fn create(&self, name: &str, config: TopicConfig, validate_only: bool) -> Result<TopicId> {
        const OPERATION: &str = "create topic";
        let request = CreateTopicRequest { name: name.to_owned(), config, validate_only };
        self.client
            .retrying(OPERATION, name, async || {
                let (reply, _) = self.client.call_any(OPERATION, &request).await?;
                check(OPERATION, name, reply.error, reply.message.as_deref())?;
                Ok(reply.id)
            })
            .await
    }

    /// Removes a topic and its data.
    ///
    /// # Errors
    /// The topic does not exist.
    pub async fn delete_topic(&self, name: &str) -> Result<()> {
        const OPERATION: &str = "delete topic";
        let request = DeleteTopicRequest { name: name.to_owned() };
        self.retrying_unless_unknown(OPERATION, name, async || {
            let (reply, _) = self.client.call_any(OPERATION, &request).await?;
            check(OPERATION, name, reply.error, reply.message.as_deref())
        })
        .await
    }

    /// Changes a topic and returns its configuration afterwards. Partitions can only become more.
    ///
    /// # Errors
    /// The topic does not exist, or the result is not allowed.
    pub async fn alter_topic(&self, name: &str, changes: TopicConfigChanges) -> Result<TopicConfig> {
        const OPERATION: &str = "alter topic";
        let request = AlterTopicRequest { name: name.to_owned(), changes, validate_only: false };
        self.retrying_unless_unknown(OPERATION, name, async || {
            let (reply, _) = self.client.call_any(OPERATION, &request).await?;
            check(OPERATION, name, reply.error, reply.message.as_deref())?;
            Ok(reply.config)
        })
        .await
    }

    /// Configuration, offsets and sizes of a topic.
    ///
    /// # Errors
    /// The topic does not exist.
    pub async fn describe_topic(&self, name: &str) -> Result<DescribeTopicReply> {
        const OPERATION: &str = "describe topic";
        let request = DescribeTopicRequest { name: name.to_owned() };
        self.retrying_unless_unknown(OPERATION, name, async || {
            let (reply, _) = self.client.call_any(OPERATION, &request).await?;
            check(OPERATION, name, reply.error, reply.message.as_deref())?;
            Ok(reply)
        })
        .await
    }

    /// The topics, by name.
    ///
    /// # Errors
    /// No broker answers.
    pub async fn list_topics(&self) -> Result<Vec<TopicListing>> {
        const OPERATION: &str = "list topics";
        let mut request = ListTopicsRequest { prefix: String::new(), after: None, limit: 0 };
        let mut topics: Vec<TopicListing> = Vec::new();
        loop {
            let page = self.client.retrying(OPERATION, "", async || {
                let (reply, _) = self.client.call_any(OPERATION, &request).await?;
                check(OPERATION, "", reply.error, None)?;
                Ok(reply)
            });
            let page = page.await?;
            topics.extend(page.topics);
            if !page.more {
                return Ok(topics);
            }
            let last = topics.last().map(|topic| topic.name.clone());
            if last == request.after {
                return Err(ClientError::new(
                    ErrorKind::Protocol,
                    OPERATION,
                    "",
                    "a page without topics, and there should be more",
                ));
            }
            request.after = last;
        }
    }

    /// Brokers and shards, with what they hold.
    ///
    /// # Errors
    /// No broker answers.
    pub async fn describe_cluster(&self) -> Result<DescribeClusterReply> {
        const OPERATION: &str = "describe cluster";
        let request = DescribeClusterRequest { broker: None };
        self.client
            .retrying(OPERATION, "", async || {
                let (reply, _) = self.client.call_any(OPERATION, &request).await?;
                check(OPERATION, "", reply.error, None)?;
                Ok(reply)
            })
            .await
    }

    /// The effective configuration of the broker that answers: keys that begin with `prefix`.
    ///
    /// # Errors
    /// No broker answers.
    pub async fn describe_config(&self, prefix: &str) -> Result<Vec<wire::ConfigEntry>> {
        const OPERATION: &str = "describe configuration";
        let request = DescribeConfigRequest { prefix: prefix.to_owned() };
        self.client
            .retrying(OPERATION, "", async || {
                let (reply, _) = self.client.call_any(OPERATION, &request).await?;
                check(OPERATION, "", reply.error, None)?;
                Ok(reply.entries)
            })
            .await
    }

    /// Retries, but takes "no such topic" for an answer: who names a topic to an administrator's operation means one that exists.
    async fn retrying_unless_unknown<T>(
        &self,
        operation: &'static str,
        name: &str,
        mut attempt: impl AsyncFnMut() -> Result<T>,
    ) -> Result<T> {
        let answered = self
            .client
            .retrying(operation, name, async || match attempt().await {
                Err(error) if error.code() == Some(ErrorCode::UnknownTopicOrPartition) => Ok(Err(error)),
                other => other.map(Ok),
            })
            .await?;
        answered.map_err(|error| error.during(operation))
    }
}

fn check(operation: &'static str, place: &str, error: ErrorCode, message: Option<&str>) -> Result<()> {
    match error {
        ErrorCode::None => Ok(()),
        code => Err(ClientError::broker(code, operation, place, message)),
    }
}
