//! DescribeGroup: members, assignments, offsets with lag, retry state and policy of one group.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::ids::{MemberEpoch, Offset, PartitionIndex, PartitionKey, TimestampMs, TopicId};
use crate::messages::assignor::Assignor;
use crate::messages::commit_offsets::CommittedOffset;
use crate::messages::field::FieldError;
use crate::messages::group_heartbeat::TopicPartitions;
use crate::messages::list_groups::GroupState;
use crate::messages::retry_policy::RetryPolicy;
use crate::names::check_group_id;

/// Asks about one group.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DescribeGroupRequest {
    /// The group.
    pub group: String,
    /// Of its partitions only those after this one: the next page.
    pub after: Option<PartitionKey>,
}

impl DescribeGroupRequest {
    /// Checks the fields.
    ///
    /// # Errors
    /// The group, when its id breaks the rules.
    pub fn validate(&self) -> Result<(), FieldError> {
        check_group_id(&self.group)
    }
}

/// Answers [`DescribeGroupRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DescribeGroupReply {
    /// Whether there is such a group.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// How it stands.
    pub state: GroupState,
    /// Counts changes of members and assignments.
    pub epoch: MemberEpoch,
    /// How its partitions are spread.
    pub assignor: Assignor,
    /// The shard that keeps it.
    pub shard: u16,
    /// What becomes of failed records.
    pub retry: RetryPolicy,
    /// Where a topic's policy differs.
    pub topic_retries: Vec<TopicRetryPolicy>,
    /// How long offsets are kept after the last member has left; `None` for ever.
    pub offsets_retention_ms: Option<u64>,
    /// Its members, by id; only on the first page.
    pub members: Vec<MemberDescription>,
    /// Its partitions, by topic id and number.
    pub partitions: Vec<GroupPartitionDescription>,
    /// There are more partitions than fit this reply.
    pub more: bool,
}

/// A policy that holds for one topic of a group.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct TopicRetryPolicy {
    /// The topic, by name: it may be named before it exists.
    pub topic: String,
    /// The policy.
    pub retry: RetryPolicy,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct MemberDescription {
    /// The member.
    pub member_id: String,
    /// The name that outlives it.
    pub instance_id: Option<String>,
    /// Client id of its connection.
    pub client_id: String,
    /// Address of its connection.
    pub host: String,
    /// Its epoch.
    pub member_epoch: MemberEpoch,
    /// Topics subscribed to, by name.
    pub topics: Vec<String>,
    /// What it says it owns.
    pub owned: Vec<TopicPartitions>,
    /// What it is to own.
    pub assigned: Vec<TopicPartitions>,
}

/// How a group stands in one partition.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct GroupPartitionDescription {
    /// The topic.
    pub topic: TopicId,
    /// Its name; empty when it has been deleted.
    pub name: String,
    /// The partition.
    pub partition: PartitionIndex,
    /// The member that owns it.
    pub member_id: Option<String>,
    /// The position; `None` when nothing was ever committed.
    pub committed: Option<CommittedOffset>,
    /// First offset that can be read.
    pub log_start: Offset,
    /// End of what consumers see; less the position it is the lag.
    pub high_watermark: Offset,
    /// Keys parked, and records that park alone.
    pub parked_keys: u32,
    /// Records that wait in them.
    pub parked_records: u32,
    /// When the next of them is due; `None` without.
    pub next_due_ms: Option<TimestampMs>,
    /// Records whose attempts were used up and that become dead letters.
    pub dead_lettered: u64,
    /// Of them, those that are not in the dead-letter topic yet.
    pub dead_letters_pending: u64,
    /// Records that were skipped after their last attempt.
    pub skipped: u64,
    /// Where the group's policy stopped the partition, and why.
    pub stopped: Option<StoppedAt>,
}

/// The record that stopped a partition.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct StoppedAt {
    /// Its offset.
    pub offset: Offset,
    /// What the consumer said.
    pub reason: String,
}

bodies! {
    DescribeGroupRequest = DescribeGroup => DescribeGroupReply;
}
