//! What is asked of the leaders of partitions: offsets, deletion of records.

use std::collections::BTreeMap;
use std::sync::Arc;

use wire::{
    DeleteRecordsPartition, DeleteRecordsRequest, ListOffsetsPartition, ListOffsetsRequest, Offset, OffsetAt, PartitionIndex,
    PartitionKey, Request, TimestampMs,
};

use super::{Admin, check};
use crate::core::cluster_map::{Target, TopicInfo};
use crate::error::{ClientError, ErrorKind, Result};

/// A position in a partition, as the broker answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionOffset {
    /// The partition.
    pub partition: u32,
    /// The offset asked for.
    pub offset: Offset,
    /// The timestamp of the record there; `None` where the question was not about time, or no record is that late.
    pub timestamp: Option<TimestampMs>,
}

impl Admin {
    /// Offsets of partitions of a topic, in the order asked for; each question goes to the partition's leader.
    ///
    /// # Errors
    /// The topic or a partition does not exist.
    pub async fn list_offsets(
        &self,
        topic: &str,
        partitions: impl IntoIterator<Item = u32>,
        at: OffsetAt,
    ) -> Result<Vec<PartitionOffset>> {
        const OPERATION: &str = "list offsets";
        let partitions: Vec<u32> = partitions.into_iter().collect();
        self.retrying_unless_unknown(OPERATION, topic, async || {
            let mut found = BTreeMap::new();
            for (target, keys) in self.by_leader(OPERATION, topic, partitions.iter().copied()).await? {
                let answers = self.offsets_of(target, &keys, at, topic).await;
                if answers.is_err() {
                    self.client.forget(topic);
                }
                found.extend(answers?.into_iter().map(|offset| (offset.partition, offset)));
            }
            Ok(partitions.iter().map(|partition| found[partition]).collect())
        })
        .await
    }

    async fn offsets_of(&self, target: Target, keys: &[PartitionKey], at: OffsetAt, topic: &str) -> Result<Vec<PartitionOffset>> {
        const OPERATION: &str = "list offsets";
        let partitions = keys.iter().map(|key| ListOffsetsPartition { topic: key.topic, partition: key.partition, at }).collect();
        let reply = self.ask_leader(OPERATION, target, &ListOffsetsRequest { partitions }).await?;
        check_named(OPERATION, topic, keys, reply.partitions.iter().map(|answer| answer.partition))?;
        let offset_of = |answer: &wire::ListOffsetsPartitionReply| {
            check(OPERATION, &format!("{topic}/{}", answer.partition), answer.error, None)?;
            let timestamp = (answer.timestamp_ms.0 >= 0).then_some(answer.timestamp_ms);
            Ok(PartitionOffset { partition: answer.partition.0, offset: answer.offset, timestamp })
        };
        reply.partitions.iter().map(offset_of).collect()
    }

    /// Deletes the records of partitions before an offset of each, and returns where each begins afterwards: later than asked for when it
    /// did so before. The deletion is durable; disk space comes back a little later, by whole segments.
    ///
    /// ```no_run
    /// # async fn example(client: corelane_client::Client) -> corelane_client::Result<()> {
    /// use corelane_client::OffsetAt;
    /// let admin = client.admin();
    /// let ends = admin.list_offsets("orders", [0, 1], OffsetAt::Latest).await?;
    /// admin.delete_records("orders", ends.iter().map(|end| (end.partition, end.offset))).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The topic or a partition does not exist, or an offset lies above what consumers see (`OffsetOutOfRange`). Other partitions may have
    /// lost their records nevertheless; asking again is harmless.
    pub async fn delete_records(
        &self,
        topic: &str,
        before: impl IntoIterator<Item = (u32, Offset)>,
    ) -> Result<BTreeMap<u32, Offset>> {
        const OPERATION: &str = "delete records";
        let before: BTreeMap<u32, Offset> = before.into_iter().collect();
        self.retrying_unless_unknown(OPERATION, topic, async || {
            let mut starts = BTreeMap::new();
            for (target, keys) in self.by_leader(OPERATION, topic, before.keys().copied()).await? {
                let deleted = self.delete_of(target, &keys, &before, topic).await;
                if deleted.is_err() {
                    self.client.forget(topic);
                }
                starts.extend(deleted?);
            }
            Ok(starts)
        })
        .await
    }

    async fn delete_of(
        &self,
        target: Target,
        keys: &[PartitionKey],
        before: &BTreeMap<u32, Offset>,
        topic: &str,
    ) -> Result<Vec<(u32, Offset)>> {
        const OPERATION: &str = "delete records";
        let asked = keys.iter().map(|key| DeleteRecordsPartition {
            topic: key.topic,
            partition: key.partition,
            before: before[&key.partition.0],
        });
        let reply = self.ask_leader(OPERATION, target, &DeleteRecordsRequest { partitions: asked.collect() }).await?;
        check_named(OPERATION, topic, keys, reply.partitions.iter().map(|answer| answer.partition))?;
        let start_of = |answer: &wire::DeleteRecordsPartitionReply| {
            check(OPERATION, &format!("{topic}/{}", answer.partition), answer.error, answer.message.as_deref())?;
            Ok((answer.partition.0, answer.log_start))
        };
        reply.partitions.iter().map(start_of).collect()
    }

    /// The partitions by the shard that leads them.
    async fn by_leader(
        &self,
        operation: &'static str,
        topic: &str,
        partitions: impl Iterator<Item = u32>,
    ) -> Result<BTreeMap<Target, Vec<PartitionKey>>> {
        let info: Arc<TopicInfo> = self.client.topic(topic).await?;
        let mut by_target: BTreeMap<Target, Vec<PartitionKey>> = BTreeMap::new();
        for partition in partitions {
            if partition >= info.partition_count() {
                return Err(ClientError::no_such_partition(operation, &info, partition));
            }
            by_target.entry(info.partitions[partition as usize].leader).or_default().push(info.key(partition));
        }
        Ok(by_target)
    }

    async fn ask_leader<R: Request>(&self, operation: &'static str, target: Target, request: &R) -> Result<R::Reply> {
        let connection = self.client.connect(target).await?;
        let timeout = self.client.options().request_timeout;
        let (reply, _) = connection.call(operation, request, Vec::new(), timeout)?.await?;
        Ok(reply)
    }
}

/// An answer names the partitions asked about, in their order.
fn check_named(
    operation: &'static str,
    topic: &str,
    asked: &[PartitionKey],
    named: impl ExactSizeIterator<Item = PartitionIndex>,
) -> Result<()> {
    if named.len() == asked.len() && named.zip(asked).all(|(named, asked)| named == asked.partition) {
        return Ok(());
    }
    Err(ClientError::new(ErrorKind::Protocol, operation, topic, "the answer does not name the partitions"))
}
