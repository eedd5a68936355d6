//! What becomes of records that a consumer could not handle.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};

use crate::dead_letter::dead_letter_topic;
use crate::error_code::ErrorCode;
use crate::limits::{
    DEAD_LETTER_PATTERN_BYTES_MAX, RETRY_ATTEMPTS_DEFAULT, RETRY_ATTEMPTS_MAX, RETRY_BACKOFF_FACTOR_PERCENT_DEFAULT,
    RETRY_BACKOFF_FACTOR_PERCENT_MAX, RETRY_BACKOFF_FIRST_MS_DEFAULT, RETRY_BACKOFF_MAX_MS_DEFAULT, RETRY_BACKOFF_MS_MAX,
    RETRY_JITTER_PERCENT_DEFAULT,
};
use crate::messages::field::{Change, FieldError, require, require_bytes, within};
use crate::topic_name::{check_topic_name, is_internal_topic};

/// What happens after the last attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Archive, Serialize, Deserialize)]
#[repr(u8)]
pub enum Exhausted {
    /// The record is appended to the dead-letter topic, and the next of its key goes on.
    #[default]
    DeadLetter = 0,
    /// The record is left behind, and the next of its key goes on.
    Skip = 1,
    /// The partition stops for this group until an operator resets it.
    Stop = 2,
}

impl Exhausted {
    /// Every choice.
    pub const ALL: [Exhausted; 3] = [Exhausted::DeadLetter, Exhausted::Skip, Exhausted::Stop];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Exhausted::DeadLetter => "dead-letter",
            Exhausted::Skip => "skip",
            Exhausted::Stop => "stop",
        }
    }

    /// The choice of that name.
    pub fn from_name(name: &str) -> Option<Exhausted> {
        Exhausted::ALL.into_iter().find(|choice| choice.name() == name)
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The policy of a group, or of one topic within it.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// How often a record is delivered before it is given up, 1 to [`RETRY_ATTEMPTS_MAX`]; 1 means no retry.
    pub attempts_max: u32,
    /// Pause before the second attempt.
    pub backoff_first_ms: u32,
    /// Each further pause is that much of the one before; 100 keeps them equal.
    pub backoff_factor_percent: u32,
    /// The longest pause.
    pub backoff_max_ms: u32,
    /// Each pause is shortened by a random part of up to this much, so that records that failed together do not return together.
    pub jitter_percent: u32,
    /// What happens after the last attempt.
    pub exhausted: Exhausted,
    /// Name of the dead-letter topic, in which `{topic}` and `{group}` stand for the record's topic and the group; `None` for
    /// [`DEAD_LETTER_TOPIC_DEFAULT`].
    pub dead_letter_topic: Option<String>,
}

/// The dead-letter topic of a policy that names none.
pub const DEAD_LETTER_TOPIC_DEFAULT: &str = "{topic}.dlq.{group}";

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        RetryPolicy {
            attempts_max: RETRY_ATTEMPTS_DEFAULT,
            backoff_first_ms: RETRY_BACKOFF_FIRST_MS_DEFAULT,
            backoff_factor_percent: RETRY_BACKOFF_FACTOR_PERCENT_DEFAULT,
            backoff_max_ms: RETRY_BACKOFF_MAX_MS_DEFAULT,
            jitter_percent: RETRY_JITTER_PERCENT_DEFAULT,
            exhausted: Exhausted::DeadLetter,
            dead_letter_topic: None,
        }
    }
}

impl RetryPolicy {
    /// Checks every value against its limits.
    ///
    /// # Errors
    /// The first value that is outside them.
    pub fn check(&self) -> Result<(), FieldError> {
        let code = ErrorCode::InvalidConfig;
        require("attempts_max", self.attempts_max, within(self.attempts_max, 1, RETRY_ATTEMPTS_MAX), code)?;
        require("backoff_first_ms", self.backoff_first_ms, within(self.backoff_first_ms, 0, RETRY_BACKOFF_MS_MAX), code)?;
        let factor = within(self.backoff_factor_percent, 100, RETRY_BACKOFF_FACTOR_PERCENT_MAX);
        require("backoff_factor_percent", self.backoff_factor_percent, factor, code)?;
        let longest = within(self.backoff_max_ms, self.backoff_first_ms, RETRY_BACKOFF_MS_MAX);
        require("backoff_max_ms", self.backoff_max_ms, longest, code)?;
        require("jitter_percent", self.jitter_percent, within(self.jitter_percent, 0, 100), code)?;
        let pattern_bytes = self.dead_letter_topic.as_ref().map_or(0, String::len);
        require_bytes("dead_letter_topic", pattern_bytes, DEAD_LETTER_PATTERN_BYTES_MAX, code)?;
        self.dead_letter_topic_of("t", "g").map(drop)
    }

    /// The topic that takes the dead letters of `topic` in `group`.
    ///
    /// # Errors
    /// The name is not one that a user's topic can have: too long, for example.
    pub fn dead_letter_topic_of(&self, topic: &str, group: &str) -> Result<String, FieldError> {
        let pattern = self.dead_letter_topic.as_deref().unwrap_or(DEAD_LETTER_TOPIC_DEFAULT);
        let name = pattern.replace("{group}", group).replace("{topic}", topic);
        let mut broken_rule = check_topic_name(&name).err().map(|error| error.to_string());
        if is_internal_topic(&name) {
            broken_rule = Some("names that begin with two underscores are the broker's own".to_owned());
        }
        require("dead_letter_topic", format_args!("{name:?}"), broken_rule, ErrorCode::InvalidTopicName)?;
        Ok(name)
    }

    /// The topic that gets the dead letters of `topic` in `group`: a pattern that gives no topic's name for these two is passed over for
    /// [`dead_letter_topic`], since a record whose attempts are used up needs a place.
    pub fn dead_letter_topic_or_default(&self, topic: &str, group: &str) -> String {
        self.dead_letter_topic_of(topic, group).unwrap_or_else(|_| dead_letter_topic(topic, group))
    }
}

/// Changes to a policy; what is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct RetryPolicyChanges {
    /// See [`RetryPolicy`].
    pub attempts_max: Option<u32>,
    /// See [`RetryPolicy`].
    pub backoff_first_ms: Option<u32>,
    /// See [`RetryPolicy`].
    pub backoff_factor_percent: Option<u32>,
    /// See [`RetryPolicy`].
    pub backoff_max_ms: Option<u32>,
    /// See [`RetryPolicy`].
    pub jitter_percent: Option<u32>,
    /// See [`RetryPolicy`].
    pub exhausted: Option<Exhausted>,
    /// See [`RetryPolicy`].
    pub dead_letter_topic: Change<String>,
}

impl RetryPolicyChanges {
    /// The policy after the changes.
    ///
    /// # Errors
    /// When the result is not allowed.
    pub fn apply(&self, before: &RetryPolicy) -> Result<RetryPolicy, FieldError> {
        let after = RetryPolicy {
            attempts_max: self.attempts_max.unwrap_or(before.attempts_max),
            backoff_first_ms: self.backoff_first_ms.unwrap_or(before.backoff_first_ms),
            backoff_factor_percent: self.backoff_factor_percent.unwrap_or(before.backoff_factor_percent),
            backoff_max_ms: self.backoff_max_ms.unwrap_or(before.backoff_max_ms),
            jitter_percent: self.jitter_percent.unwrap_or(before.jitter_percent),
            exhausted: self.exhausted.unwrap_or(before.exhausted),
            dead_letter_topic: self.dead_letter_topic.clone().apply(before.dead_letter_topic.clone()),
        };
        after.check()?;
        Ok(after)
    }
}

#[cfg(test)]
mod tests {
    use super::{Exhausted, RetryPolicy, RetryPolicyChanges};
    use crate::error_code::ErrorCode;
    use crate::messages::field::Change;

    #[test]
    fn the_default_is_allowed_and_each_limit_names_its_field() {
        assert_eq!(RetryPolicy::default().check(), Ok(()));
        type Spoil = fn(&mut RetryPolicy);
        let cases: [(&str, Spoil); 8] = [
            ("attempts_max", |policy| policy.attempts_max = 0),
            ("backoff_first_ms", |policy| policy.backoff_first_ms = u32::MAX),
            ("backoff_factor_percent", |policy| policy.backoff_factor_percent = 99),
            ("backoff_max_ms", |policy| policy.backoff_max_ms = policy.backoff_first_ms - 1),
            ("jitter_percent", |policy| policy.jitter_percent = 101),
            ("dead_letter_topic", |policy| policy.dead_letter_topic = Some("{topic}/dead".to_owned())),
            ("dead_letter_topic", |policy| policy.dead_letter_topic = Some("__{topic}".to_owned())),
            ("dead_letter_topic", |policy| policy.dead_letter_topic = Some("{topic}".repeat(1000))),
        ];
        for (field, spoil) in cases {
            let mut policy = RetryPolicy::default();
            spoil(&mut policy);
            assert_eq!(policy.check().expect_err(field).field, field);
        }
    }

    #[test]
    fn the_dead_letter_topic_is_named_after_topic_and_group() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.dead_letter_topic_of("orders", "billing").as_deref(), Ok("orders.dlq.billing"));
        let too_long = policy.dead_letter_topic_of(&"x".repeat(249), "billing").expect_err("too long");
        assert_eq!(too_long.code, ErrorCode::InvalidTopicName);
        let changes = RetryPolicyChanges { dead_letter_topic: Change::Set("dead".to_owned()), ..Default::default() };
        let fixed = changes.apply(&policy).expect("allowed");
        assert_eq!(fixed.dead_letter_topic_of("orders", "billing").as_deref(), Ok("dead"));
        assert_eq!(RetryPolicy { dead_letter_topic: None, ..fixed }, policy);
    }

    #[test]
    fn a_pattern_that_gives_no_name_does_not_lose_the_record() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.dead_letter_topic_or_default("orders", "billing"), "orders.dlq.billing");
        let fallback = policy.dead_letter_topic_or_default("orders", "a b");
        assert!(fallback.starts_with("orders.dlq.a_b."), "{fallback}");
    }

    #[test]
    fn names_are_read_back() {
        for choice in Exhausted::ALL {
            assert_eq!(Exhausted::from_name(choice.name()), Some(choice));
        }
    }
}
