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
//! - Memory is bounded by `buffer_bytes_max` for what is sent and `prefetch_bytes_max` for what is fetched.
//! - Whatever bytes a broker sends, the result is an error value, never a panic.
//!
//! Absent on purpose: any knowledge of how the broker stores, and of runtimes other than tokio.
//!
//! # Example
//!
//! ```no_run
//! # async fn example() -> corelane_client::Result<()> {
//! use corelane_client::{Client, ClientOptions, ConsumerOptions, ProducerOptions, Record, StartAt, TopicConfig};
//!
//! let client = Client::connect(ClientOptions::new(["127.0.0.1:7311"])).await?;
//! client.admin().create_topic("greetings", TopicConfig::default()).await?;
//!
//! let producer = client.producer(ProducerOptions::default());
//! let delivery = producer.send(Record::to("greetings").key("en").value("hello")).await?.await?;
//! println!("offset {}, {:?}", delivery.offset.0, delivery.level);
//!
//! let consumer = client.consumer(ConsumerOptions::default());
//! consumer.assign_all("greetings", StartAt::Earliest).await?;
//! let batch = consumer.next_batch().await?;
//! for record in batch.records() {
//!     println!("{:?}", record.value);
//! }
//! # Ok(())
//! # }
//! ```
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
    GroupPartitionDescription, GroupState, LeaderEpoch, MemberDescription, Offset, OffsetAt, PartitionDescription, RecordView,
    RetryPolicy, RetryPolicyChanges, ShardDescription, TimestampKind, TimestampMs, TopicConfig, TopicConfigChanges, TopicId,
    TopicListing, dead_letter,
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
