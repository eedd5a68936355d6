//! AlterGroup: a group's policy for failed records, and how long its offsets are kept.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::limits::{OFFSETS_RETENTION_MS_MAX, OFFSETS_RETENTION_MS_MIN};
use crate::messages::field::{Change, FieldError, require, within};
use crate::messages::retry_policy::{RetryPolicy, RetryPolicyChanges};
use crate::names::check_group_id;
use crate::topic_name::check_topic_name;

/// Changes a group.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct AlterGroupRequest {
    /// The group; it is made when it does not exist.
    pub group: String,
    /// The topic whose policy changes, by name; `None` for the group's own, which holds wherever a topic has none.
    pub topic: Option<String>,
    /// Changes to that policy, which begin with what holds now; without one of its own a topic has the group's, and a group the default.
    pub retry: Change<RetryPolicyChanges>,
    /// How long offsets are kept after the last member has left; without one of its own a group has the broker's.
    pub offsets_retention: Change<OffsetsRetention>,
    /// Partitions that the policy stopped go on: the record that stopped them is due at once, its attempts counted anew.
    pub resume: bool,
}

/// How long offsets of a group without members are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub enum OffsetsRetention {
    /// That long, in milliseconds: [`OFFSETS_RETENTION_MS_MIN`] to [`OFFSETS_RETENTION_MS_MAX`].
    Ms(u64),
    /// For ever.
    Forever,
}

impl AlterGroupRequest {
    /// Checks the fields; the policy is checked by [`RetryPolicyChanges::apply`].
    ///
    /// # Errors
    /// The first field outside its limits.
    pub fn validate(&self) -> Result<(), FieldError> {
        check_group_id(&self.group)?;
        if let Some(topic) = &self.topic {
            let broken_rule = check_topic_name(topic).err().map(|error| error.to_string());
            require("topic", format_args!("{topic:?}"), broken_rule, ErrorCode::InvalidTopicName)?;
        }
        if let Change::Set(OffsetsRetention::Ms(retention_ms)) = self.offsets_retention {
            let broken_rule = within(retention_ms, OFFSETS_RETENTION_MS_MIN, OFFSETS_RETENTION_MS_MAX);
            require("offsets_retention", retention_ms, broken_rule, ErrorCode::InvalidConfig)?;
        }
        Ok(())
    }
}

/// Answers [`AlterGroupRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct AlterGroupReply {
    /// Whether it was changed.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// The policy that was asked about, now.
    pub retry: RetryPolicy,
    /// How long offsets are kept, now; `None` for ever.
    pub offsets_retention_ms: Option<u64>,
}

bodies! {
    AlterGroupRequest = AlterGroup => AlterGroupReply;
}
