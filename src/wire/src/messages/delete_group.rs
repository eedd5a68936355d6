//! DeleteGroup: forgets a group.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::messages::field::FieldError;
use crate::names::check_group_id;

/// Removes a group without members, with its offsets, retry state and policy.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DeleteGroupRequest {
    /// The group.
    pub group: String,
}

impl DeleteGroupRequest {
    /// Checks the fields.
    ///
    /// # Errors
    /// The group, when its id breaks the rules.
    pub fn validate(&self) -> Result<(), FieldError> {
        check_group_id(&self.group)
    }
}

/// Answers [`DeleteGroupRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct DeleteGroupReply {
    /// Whether it is gone: [`ErrorCode::GroupNotEmpty`] while it has members, [`ErrorCode::DeadLettersPending`] while records that it gave
    /// up are not in their dead-letter topic.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
}

bodies! {
    DeleteGroupRequest = DeleteGroup => DeleteGroupReply;
}
