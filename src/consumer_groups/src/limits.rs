//! Every limit of consumer groups, with the reason for its value.

/// Name of a group: the topic names' limit, so that `<topic>.dlq.<group>` can be checked as one name.
pub const GROUP_ID_BYTES_MAX: usize = 249;

/// Name that a member makes for itself: a UUID as text takes 36.
pub const MEMBER_ID_BYTES_MAX: usize = 64;

/// Name of a static member, given by an operator: host and pod names fit.
pub const INSTANCE_ID_BYTES_MAX: usize = 249;
