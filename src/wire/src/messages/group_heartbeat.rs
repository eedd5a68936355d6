//! GroupHeartbeat: one request by which a member joins, stays, confirms what it has given up, and leaves.
//!
//! ```text
//!  member                        coordinator
//!  epoch 0, subscription    ->
//!                           <-   epoch 7, assignment: what it may own now
//!  epoch 7, owned           ->   (every heartbeat interval)
//!                           <-   epoch 8, a smaller assignment: it gives up what is missing
//!  epoch 8, owned smaller   ->   (at once: others wait for it)
//!                           <-   epoch 8
//!  epoch -1                 ->   (leaves)
//! ```

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::frame::FrameError;
use crate::ids::{MemberEpoch, PartitionIndex, TopicId};
use crate::limits::{
    GROUP_PARTITIONS_MAX, REBALANCE_TIMEOUT_MS_MAX, REBALANCE_TIMEOUT_MS_MIN, SESSION_TIMEOUT_MS_MAX, SESSION_TIMEOUT_MS_MIN,
    SUBSCRIBED_TOPICS_MAX, WAIT_MS_MAX,
};
use crate::messages::assignor::Assignor;
use crate::messages::field::{FieldError, require, within};
use crate::messages::produce::check_count;
use crate::names::{check_group_id, check_instance_id, check_member_id};
use crate::topic_name::check_topic_name;

/// Joins a group, stays in it, or leaves it, by its epoch.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct GroupHeartbeatRequest {
    /// The group.
    pub group: String,
    /// The member: a text that the client makes, such as a UUID, new for each life of a consumer.
    pub member_id: String,
    /// A name that outlives the process: a member that comes back with it within the session timeout gets what it had.
    pub instance_id: Option<String>,
    /// The epoch that the member has: [`MemberEpoch::JOIN`], [`MemberEpoch::LEAVE`], [`MemberEpoch::LEAVE_STATIC`], or as answered last.
    pub member_epoch: MemberEpoch,
    /// How long the coordinator may wait for news before it answers, at most [`WAIT_MS_MAX`]; 0 to be answered at once. News is an assignment
    /// or an error: so a rebalance goes at the speed of the network, not of heartbeats.
    pub max_wait_ms: u32,
    /// How long the member may take to give up partitions before it is removed from the group.
    pub rebalance_timeout_ms: u32,
    /// How long the member may be silent before it is removed from the group.
    pub session_timeout_ms: u32,
    /// The assignor wanted; `None` for whatever the group has.
    pub assignor: Option<Assignor>,
    /// The topics subscribed to, by name; `None` for the same as before. A member that joins names them.
    pub topics: Option<Vec<String>>,
    /// The partitions that the member owns; `None` for the same as before.
    pub owned: Option<Vec<TopicPartitions>>,
}

/// Partitions of one topic.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct TopicPartitions {
    /// The topic.
    pub topic: TopicId,
    /// Its partitions.
    pub partitions: Vec<PartitionIndex>,
}

impl GroupHeartbeatRequest {
    fn check(&self) -> Result<(), FrameError> {
        check_count("topics in a subscription", self.topics.as_ref().map_or(0, Vec::len), SUBSCRIBED_TOPICS_MAX)?;
        let owned = self.owned.as_deref().unwrap_or_default();
        check_count("topics owned", owned.len(), SUBSCRIBED_TOPICS_MAX)?;
        let partitions = owned.iter().map(|topic| topic.partitions.len()).sum();
        check_count("partitions owned", partitions, GROUP_PARTITIONS_MAX)
    }

    /// Checks the fields.
    ///
    /// # Errors
    /// The first field outside its limits.
    pub fn validate(&self) -> Result<(), FieldError> {
        check_group_id(&self.group)?;
        check_member_id(&self.member_id)?;
        self.instance_id.as_deref().map_or(Ok(()), check_instance_id)?;
        let epoch = within(self.member_epoch.0, MemberEpoch::LEAVE_STATIC.0, i32::MAX);
        require("member_epoch", self.member_epoch, epoch, ErrorCode::InvalidRequest)?;
        require("max_wait_ms", self.max_wait_ms, within(self.max_wait_ms, 0, WAIT_MS_MAX), ErrorCode::InvalidRequest)?;
        let session = within(self.session_timeout_ms, SESSION_TIMEOUT_MS_MIN, SESSION_TIMEOUT_MS_MAX);
        require("session_timeout_ms", self.session_timeout_ms, session, ErrorCode::InvalidRequest)?;
        let rebalance = within(self.rebalance_timeout_ms, REBALANCE_TIMEOUT_MS_MIN, REBALANCE_TIMEOUT_MS_MAX);
        require("rebalance_timeout_ms", self.rebalance_timeout_ms, rebalance, ErrorCode::InvalidRequest)?;
        for topic in self.topics.iter().flatten() {
            let broken_rule = check_topic_name(topic).err().map(|error| error.to_string());
            require("topics", format_args!("{topic:?}"), broken_rule, ErrorCode::InvalidTopicName)?;
        }
        Ok(())
    }
}

/// Answers [`GroupHeartbeatRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct GroupHeartbeatReply {
    /// Whether the member is in the group, or has left it as asked.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// The epoch to send from now on.
    pub member_epoch: MemberEpoch,
    /// When to send the next heartbeat, at the latest.
    pub heartbeat_interval_ms: u32,
    /// What the member may own from now on: it gives up what is missing and takes what is new. `None` for the same as before.
    pub assignment: Option<Vec<AssignedTopic>>,
}

/// Partitions of one topic that a member may own.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct AssignedTopic {
    /// The topic.
    pub topic: TopicId,
    /// Its name.
    pub name: String,
    /// Its partitions.
    pub partitions: Vec<PartitionIndex>,
}

bodies! {
    GroupHeartbeatRequest within check = GroupHeartbeat => GroupHeartbeatReply;
}
