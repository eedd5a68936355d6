//! What a topic may be called and how it may be configured on this broker: the rules of the protocol, and the bounds set here.

use super::catalog::Refusal;
use crate::config::Limits;
use wire::{ErrorCode, FieldError, TopicConfig, TopicConfigChanges, check_topic_name};

/// Checks a name.
pub(super) fn check_name(name: &str) -> Result<(), Refusal> {
    check_topic_name(name).map_err(|error| Refusal::new(ErrorCode::InvalidTopicName, error.to_string()))
}

/// Checks a configuration.
pub(super) fn check_config(config: &TopicConfig, limits: &Limits) -> Result<(), Refusal> {
    config.check().map_err(refusal)?;
    if config.replication_factor != 1 {
        let message =
            format!("replication_factor is {}: this broker stands alone, so only 1 is possible", config.replication_factor);
        return Err(Refusal::new(ErrorCode::InvalidReplicationFactor, message));
    }
    if u64::from(config.message_bytes_max) > limits.message_bytes_max.0 {
        let message = format!(
            "message_bytes_max is {}: limits.message_bytes_max is {}",
            config.message_bytes_max, limits.message_bytes_max.0
        );
        return Err(Refusal::new(ErrorCode::InvalidConfig, message));
    }
    Ok(())
}

/// `config` with `changes`.
pub(super) fn changed(config: &TopicConfig, changes: &TopicConfigChanges) -> Result<TopicConfig, Refusal> {
    changes.apply(config).map_err(refusal)
}

fn refusal(error: FieldError) -> Refusal {
    Refusal::new(error.code, error.to_string())
}
