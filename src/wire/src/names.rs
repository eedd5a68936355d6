//! What groups, members, instances and producers may be called.

use crate::error_code::ErrorCode;
use crate::limits::{GROUP_ID_BYTES_MAX, INSTANCE_ID_BYTES_MAX, MEMBER_ID_BYTES_MAX, PRODUCER_NAME_BYTES_MAX};
use crate::messages::FieldError;
use crate::topic_name::is_name_character;

/// Checks a group's id: 1 to [`GROUP_ID_BYTES_MAX`] of `[a-zA-Z0-9._-]`, since topics are named after it.
///
/// # Errors
/// The rule that it breaks, with [`ErrorCode::InvalidGroupId`].
pub fn check_group_id(group: &str) -> Result<(), FieldError> {
    check_name("group", group, GROUP_ID_BYTES_MAX, ErrorCode::InvalidGroupId)
}

/// Checks a member's id: 1 to [`MEMBER_ID_BYTES_MAX`] of `[a-zA-Z0-9._-]`.
///
/// # Errors
/// The rule that it breaks.
pub fn check_member_id(member_id: &str) -> Result<(), FieldError> {
    check_name("member_id", member_id, MEMBER_ID_BYTES_MAX, ErrorCode::InvalidRequest)
}

/// Checks the name of a member that outlives its process: 1 to [`INSTANCE_ID_BYTES_MAX`] of `[a-zA-Z0-9._-]`.
///
/// # Errors
/// The rule that it breaks.
pub fn check_instance_id(instance_id: &str) -> Result<(), FieldError> {
    check_name("instance_id", instance_id, INSTANCE_ID_BYTES_MAX, ErrorCode::InvalidRequest)
}

/// Checks the name of a producer that outlives its process: 1 to [`PRODUCER_NAME_BYTES_MAX`] of `[a-zA-Z0-9._-]`.
///
/// # Errors
/// The rule that it breaks.
pub fn check_producer_name(name: &str) -> Result<(), FieldError> {
    check_name("name", name, PRODUCER_NAME_BYTES_MAX, ErrorCode::InvalidRequest)
}

fn check_name(field: &'static str, name: &str, limit: usize, code: ErrorCode) -> Result<(), FieldError> {
    if name.len() > limit {
        return Err(FieldError {
            field,
            found: format!("{} bytes long", name.len()),
            rule: format!("{limit} are allowed"),
            code,
        });
    }
    if name.is_empty() || !name.chars().all(is_name_character) {
        let rule = "letters a-z A-Z, digits, '.', '_' and '-' are allowed, and at least one".to_owned();
        return Err(FieldError { field, found: format!("{name:?}"), rule, code });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{check_group_id, check_member_id};
    use crate::error_code::ErrorCode;

    #[test]
    fn names_by_the_rules() {
        for name in ["billing", "a.b_c-D9", &"x".repeat(128), "01893a2c-6f3d-7b1c-9a4e-3c1f0e6b7d21"] {
            assert_eq!(check_group_id(name), Ok(()), "{name}");
            assert_eq!(check_member_id(name), Ok(()), "{name}");
        }
        for name in ["", "a b", "a/b", "caf\u{e9}", &"x".repeat(129)] {
            assert_eq!(check_group_id(name).expect_err(name).code, ErrorCode::InvalidGroupId);
            assert_eq!(check_member_id(name).expect_err(name).code, ErrorCode::InvalidRequest);
        }
    }
}
