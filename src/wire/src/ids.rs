//! Names and positions, each a type of its own so that they cannot be mixed up.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};

/// Identity of a topic for its whole life; a topic created again under the same name gets another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct TopicId(pub [u8; 16]);

/// Number of a partition within its topic, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct PartitionIndex(pub u32);

/// A partition, everywhere in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct PartitionKey {
    /// The topic.
    pub topic: TopicId,
    /// The partition within it.
    pub partition: PartitionIndex,
}

/// Position of a record in its partition, from 0. Offsets may have gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct Offset(pub u64);

/// Reign of a leader of a partition; a greater one is later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct LeaderEpoch(pub u32);

/// Milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct TimestampMs(pub i64);

/// A producer whose retries are recognised; -1 where unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct ProducerId(pub i64);

/// Instance of a producer: a greater one is later and fences those before it; -1 where unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct ProducerEpoch(pub i16);

/// Number of a record among those of one producer in one partition, from 0; after `i32::MAX` it goes on with 0. -1 where unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Archive, Serialize, Deserialize)]
pub struct Sequence(pub i32);

/// Epoch of a member of a group: it grows with each assignment that the member has taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Archive, Serialize, Deserialize)]
pub struct MemberEpoch(pub i32);

impl ProducerId {
    /// Of a batch whose retries are not recognised.
    pub const NONE: ProducerId = ProducerId(-1);
}

impl ProducerEpoch {
    /// Of a batch whose retries are not recognised.
    pub const NONE: ProducerEpoch = ProducerEpoch(-1);
}

impl Sequence {
    /// Of a batch whose retries are not recognised.
    pub const NONE: Sequence = Sequence(-1);
    /// Of the first record.
    pub const ZERO: Sequence = Sequence(0);

    /// The sequence `count` further on.
    pub const fn plus(self, count: u32) -> Sequence {
        assert!(self.0 >= 0, "only a sequence that is used can be counted from");
        // Both are below 2^32, so that the sum is far from overflow, and the remainder fits again.
        Sequence(((self.0 as u64 + count as u64) % (1 << 31)) as i32)
    }
}

impl MemberEpoch {
    /// Sent to join a group.
    pub const JOIN: MemberEpoch = MemberEpoch(0);
    /// Sent to leave it.
    pub const LEAVE: MemberEpoch = MemberEpoch(-1);
    /// Sent by a member with an instance id that will be back within its session timeout.
    pub const LEAVE_STATIC: MemberEpoch = MemberEpoch(-2);
}

impl TopicId {
    /// 32 lower-case hexadecimal digits: the name of the topic's folder.
    pub fn to_hex(self) -> String {
        format!("{self}")
    }

    /// The reverse of [`TopicId::to_hex`]; `None` for anything else, upper case included, so that one id has one name.
    pub fn from_hex(text: &str) -> Option<TopicId> {
        let text = text.as_bytes();
        if text.len() != 32 {
            return None;
        }
        let mut id = [0_u8; 16];
        for (byte, pair) in id.iter_mut().zip(text.chunks_exact(2)) {
            *byte = hex_digit(pair[0])? << 4 | hex_digit(pair[1])?;
        }
        Some(TopicId(id))
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl PartitionKey {
    /// The partition `partition` of `topic`.
    pub const fn new(topic: TopicId, partition: PartitionIndex) -> PartitionKey {
        PartitionKey { topic, partition }
    }
}

impl Offset {
    /// The first offset of a partition.
    pub const ZERO: Offset = Offset(0);

    /// The offset `count` further on. Saturates: offsets are bounded far below `u64::MAX` where they enter.
    pub const fn plus(self, count: u64) -> Offset {
        Offset(self.0.saturating_add(count))
    }

    /// How many offsets lie in `earlier..self`; 0 when `earlier` is later.
    pub const fn since(self, earlier: Offset) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TopicId({self})")
    }
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.partition)
    }
}

impl fmt::Debug for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionKey({self})")
    }
}

/// Text of the number, and the conversion back from the archived form for those who read bodies in place.
macro_rules! number_newtype {
    ($($name:ident, $archived:ident;)*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl From<&$archived> for $name {
            fn from(archived: &$archived) -> $name {
                $name(archived.0.to_native())
            }
        }
    )*};
}

number_newtype! {
    PartitionIndex, ArchivedPartitionIndex;
    Offset, ArchivedOffset;
    LeaderEpoch, ArchivedLeaderEpoch;
    TimestampMs, ArchivedTimestampMs;
    ProducerId, ArchivedProducerId;
    ProducerEpoch, ArchivedProducerEpoch;
    Sequence, ArchivedSequence;
    MemberEpoch, ArchivedMemberEpoch;
}

impl From<&ArchivedTopicId> for TopicId {
    fn from(archived: &ArchivedTopicId) -> TopicId {
        TopicId(archived.0)
    }
}

impl From<&ArchivedPartitionKey> for PartitionKey {
    fn from(archived: &ArchivedPartitionKey) -> PartitionKey {
        PartitionKey { topic: (&archived.topic).into(), partition: (&archived.partition).into() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Sequence, TopicId};

    #[test]
    fn sequences_wrap_to_zero() {
        assert_eq!(Sequence::ZERO.plus(5), Sequence(5));
        assert_eq!(Sequence(i32::MAX).plus(1), Sequence::ZERO);
        assert_eq!(Sequence(i32::MAX - 1).plus(4), Sequence(2));
        assert_eq!(Sequence(i32::MAX).plus(u32::MAX), Sequence(i32::MAX - 1).plus(u32::MAX).plus(1));
    }

    #[test]
    fn a_topic_id_has_one_text_and_reads_it_back() {
        let id = TopicId([0, 1, 0x2a, 0xff, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(id.to_hex(), "00012aff0405060708090a0b0c0d0e0f");
        assert_eq!(TopicId::from_hex(&id.to_hex()), Some(id));
        for wrong in
            ["", "00", "00012AFF0405060708090a0b0c0d0e0f", "00012aff0405060708090a0b0c0d0e0g", "é0012aff0405060708090a0b0c0d0e0"]
        {
            assert_eq!(TopicId::from_hex(wrong), None, "{wrong}");
        }
    }
}
