//! What becomes of failed records, by group and topic.

use std::collections::BTreeMap;

use thiserror::Error;
use wire::RetryPolicy;

use super::entry::RetryKey;
use super::limits::TOPIC_POLICIES_MAX;

/// As many topics of a group have a policy of their own as may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{TOPIC_POLICIES_MAX} topics of the group have a policy of their own: give the group one that fits most")]
pub struct TooManyPoliciesError;

/// The policies of one group. Topics are named, not identified: a policy can be there before its topic.
#[derive(Debug, Default)]
pub(super) struct Policies {
    default: RetryPolicy,
    group: Option<RetryPolicy>,
    topics: BTreeMap<String, RetryPolicy>,
}

impl Policies {
    pub(super) fn of(&self, topic: &str) -> &RetryPolicy {
        self.topics.get(topic).unwrap_or_else(|| self.group())
    }

    pub(super) fn group(&self) -> &RetryPolicy {
        self.group.as_ref().unwrap_or(&self.default)
    }

    pub(super) fn topics(&self) -> impl Iterator<Item = (&str, &RetryPolicy)> {
        self.topics.iter().map(|(topic, policy)| (topic.as_str(), policy))
    }

    /// The longest pause of any of them.
    pub(super) fn pause_ms_max(&self) -> u32 {
        self.topics().map(|(_, policy)| policy.backoff_max_ms).fold(self.group().backoff_max_ms, u32::max)
    }

    /// What was set for just this.
    pub(super) fn own(&self, topic: Option<&str>) -> Option<&RetryPolicy> {
        topic.map_or(self.group.as_ref(), |topic| self.topics.get(topic))
    }

    pub(super) fn set(&mut self, topic: Option<&str>, policy: Option<RetryPolicy>) -> Result<(), TooManyPoliciesError> {
        let is_new = topic.is_some_and(|topic| !self.topics.contains_key(topic));
        if policy.is_some() && is_new && self.topics.len() >= TOPIC_POLICIES_MAX {
            return Err(TooManyPoliciesError);
        }
        match (topic, policy) {
            (None, policy) => self.group = policy,
            (Some(topic), Some(policy)) => _ = self.topics.insert(topic.to_owned(), policy),
            (Some(topic), None) => _ = self.topics.remove(topic),
        }
        Ok(())
    }

    /// Applies an entry of the log; false when it does not fit.
    pub(super) fn restore(&mut self, topic: Option<&str>, policy: Option<RetryPolicy>) -> bool {
        policy.as_ref().is_none_or(|policy| policy.check().is_ok()) && self.set(topic, policy).is_ok()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = RetryKey> + '_ {
        let group = self.group.iter().map(|_| RetryKey::Policy(None));
        group.chain(self.topics.keys().cloned().map(|topic| RetryKey::Policy(Some(topic))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_its_own_policy_or_that_of_the_group_or_the_default() {
        let mut policies = Policies::default();
        let with = |attempts_max| Some(RetryPolicy { attempts_max, ..RetryPolicy::default() });
        policies.set(Some("a"), with(7)).unwrap();
        assert_eq!(policies.of("a").attempts_max, 7);
        assert_eq!(policies.of("b"), &RetryPolicy::default());
        policies.set(None, with(9)).unwrap();
        assert_eq!(policies.of("b").attempts_max, 9);
        policies.set(Some("a"), None).unwrap();
        assert_eq!(policies.of("a").attempts_max, 9);
    }

    #[test]
    fn policies_are_bounded() {
        let mut policies = Policies::default();
        for number in 0..TOPIC_POLICIES_MAX {
            policies.set(Some(&number.to_string()), Some(RetryPolicy::default())).unwrap();
        }
        assert_eq!(policies.set(Some("one more"), Some(RetryPolicy::default())), Err(TooManyPoliciesError));
        assert_eq!(policies.set(Some("0"), Some(RetryPolicy::default())), Ok(()));
        assert_eq!(policies.set(Some("0"), None), Ok(()));
        assert_eq!(policies.set(Some("one more"), Some(RetryPolicy::default())), Ok(()));
    }
}
