//! The native client: producer, consumer, admin. Tokio; knows only the wire.
//!
//! ```text
//!   Producer       Consumer       GroupConsumer                  Admin     handles: what programs use
//!      │              │                │                          │
//!   ProducerCore   ConsumerCore   MembershipCore, RetryingCore    │         core/: what to send next, what a reply means (no sockets, no clock)
//!      │              │                │                          │
//!   driver         driver           driver, over a Consumer       │         one task each: does what its core says
//!      └──────────────┴────────────────┴──────────────────────────┘
//!        ConnectionPool ── Connection      transport/: one connection per (broker, shard)
//!        ClusterMap                        metadata, refreshed when a leader turns out to be wrong
//! ```
//!
//! Invariants:
//! - A partition's records reach the broker in the order in which `send` accepted them (see [`ProducerOptions`]).
//! - Every accepted record gets exactly one result.
//! - A group commits no record that its program has not ended with: each is delivered at least once (see [`GroupConsumer`]).
//! - Memory is bounded by `buffer_bytes_max` for what is sent and `prefetch_bytes_max` for what is fetched.
//! - Whatever bytes a broker sends, the result is an error value, never a panic.
//!
//! Absent on purpose: any knowledge of how the broker stores, and of runtimes other than tokio.
//!
//! # Producing
//!
//! A [`Client`] is the way in; cloning it is cheap. [`Producer::send`] waits only while the buffer is full. Its result, a [`DeliveryFuture`], comes
//! when the record is durable as [`ProducerOptions::acks`] asks for.
//!
//! ```no_run
//! use corelane_client::{Client, ClientOptions, ProducerOptions, Record, TopicConfig};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> corelane_client::Result<()> {
//!     let client = Client::connect(ClientOptions::new(["127.0.0.1:7311"])).await?;
//!     client.admin().create_topic("orders", TopicConfig { partitions: 6, ..TopicConfig::default() }).await?;
//!
//!     let producer = client.producer(ProducerOptions::default());
//!     // Records of one key go to one partition, in order. Many are sent before the first one is waited for.
//!     let first = producer.send(Record::to("orders").key("customer-7").value("3 apples")).await?;
//!     let second = producer.send(Record::to("orders").key("customer-7").value("1 pear")).await?;
//!     for delivery in [first.await?, second.await?] {
//!         println!("partition {}, offset {}, {:?}", delivery.partition, delivery.offset, delivery.level);
//!     }
//!     producer.close().await
//! }
//! ```
//!
//! # Consuming
//!
//! A [`Consumer`] reads the partitions it is told to, from where it is told to, in batches; records are borrowed from the buffer that brought them.
//! It remembers nothing: where to go on is the program's own knowledge.
//!
//! ```no_run
//! # async fn example(client: corelane_client::Client) -> corelane_client::Result<()> {
//! use corelane_client::{ConsumerOptions, StartAt};
//!
//! let consumer = client.consumer(ConsumerOptions::default());
//! consumer.assign_all("orders", StartAt::Earliest).await?;
//! loop {
//!     let batch = consumer.next_batch().await?;
//!     for record in batch.records() {
//!         println!("{}/{}: {:?}", batch.partition(), record.offset, record.value);
//!     }
//! }
//! # }
//! ```
//!
//! # Working through a topic as a group
//!
//! The members of a group share the partitions of its topics, and the group remembers how far it is. A record that fails is tried again later, those
//! behind it of the same key wait for it, and other keys go on. How often and when is the group's policy; what fails to the end becomes a dead
//! letter: a copy in the topic `orders.dlq.billing`, with the reason in its headers (see [`dead_letter`]).
//!
//! ```no_run
//! # async fn handle(_: corelane_client::RecordView<'_>) -> Result<(), String> { Ok(()) }
//! # async fn shutdown() {}
//! # async fn example(client: corelane_client::Client) -> corelane_client::Result<()> {
//! use corelane_client::{Acknowledge, Change, GroupOptions, RetryPolicyChanges};
//! use futures_util::{StreamExt, TryStreamExt};
//!
//! // Once, and for all members: five attempts, the second after a second, each wait at most a minute.
//! let policy = RetryPolicyChanges {
//!     attempts_max: Some(5),
//!     backoff_first_ms: Some(1000),
//!     backoff_max_ms: Some(60_000),
//!     ..RetryPolicyChanges::default()
//! };
//! client.admin().alter_group("billing", None, Change::Set(policy), Change::Keep, false).await?;
//!
//! let options = GroupOptions { acknowledge: Acknowledge::Explicit, ..GroupOptions::new("billing", ["orders"]) };
//! let consumer = client.group_consumer(options);
//! let mut records = Box::pin(consumer.records().take_until(shutdown()));
//! while let Some(record) = records.try_next().await? {
//!     match handle(record.record()).await {
//!         Ok(()) => consumer.done(&record),
//!         Err(reason) => consumer.fail(&record, &reason),
//!     }
//! }
//! drop(records);
//! // Commits what is done, and hands the partitions over at once.
//! consumer.close().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Dead letters are records as others: a [`Consumer`] reads them, and `corelane dlq list`, `peek`, `replay` and `drop` are there for operators. The
//! same programs, complete, are the crate's examples `produce`, `consume` and `worker`.
#![forbid(unsafe_code)]

mod admin;
mod arrived;
mod client;
mod clock;
mod consumer;
mod core;
mod error;
mod group;
mod limits;
mod options;
mod producer;
mod record;
mod requests;
mod transport;

pub use wire::{
    AckLevel, Acks, AlterGroupReply, Assignor, BatchHeader, BrokerDescription, Change, Cleanup, CommittedOffset, Compression,
    DescribeClusterReply, DescribeGroupReply, DescribeTopicReply, Durability, ErrorCode, Exhausted, GroupListing,
    GroupPartitionDescription, GroupState, LeaderEpoch, MemberDescription, Offset, OffsetAt, OffsetsRetention,
    PartitionDescription, RecordView, RetryPolicy, RetryPolicyChanges, ShardDescription, TimestampKind, TimestampMs, TopicConfig,
    TopicConfigChanges, TopicId, TopicListing, dead_letter,
};

pub use crate::admin::{Admin, PartitionOffset};
pub use crate::client::Client;
pub use crate::consumer::{BatchStream, Consumer, FetchedBatch, StartAt};
pub use crate::core::cluster_map::{PartitionInfo, Target, TopicInfo};
pub use crate::error::{ClientError, ErrorKind, Result};
pub use crate::group::{GroupConsumer, GroupRecord, OnRebalance, Rebalance, RecordStream};
pub use crate::options::{
    Acknowledge, BROKER_DEFAULT, ClientOptions, ConsumerOptions, GroupOptions, OutOfRange, ProducerOptions,
};
pub use crate::producer::{DeliveryFuture, Producer, ProducerStats};
pub use crate::record::{Delivery, Record};
