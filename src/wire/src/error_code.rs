//! What a broker can answer besides success, with whether trying again can help.

use std::fmt;

use rkyv::rancor::Fallible;
use rkyv::rend::u16_le;
use rkyv::{Archive, Deserialize, Place, Serialize};

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $retryable:literal, $text:literal;)*) => {
        /// The result of a request, or of its part for one partition.
        ///
        /// On the wire it is a number. One that this version does not know reads as [`ErrorCode::Unrecognised`], so that a newer
        /// broker can answer an older client.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum ErrorCode {
            $($(#[$doc])* $name = $code,)*
        }

        impl ErrorCode {
            /// Every code.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode::$name),*];

            /// The code with that number; [`ErrorCode::Unrecognised`] for a number this version does not know.
            pub const fn from_code(code: u16) -> ErrorCode {
                match code {
                    $($code => ErrorCode::$name,)*
                    _ => ErrorCode::Unrecognised,
                }
            }

            /// Whether the same request can succeed later, possibly at another broker after a look at the metadata.
            pub const fn retryable(self) -> bool {
                match self {
                    $(ErrorCode::$name => $retryable,)*
                }
            }

            /// What happened, in words.
            pub const fn text(self) -> &'static str {
                match self {
                    $(ErrorCode::$name => $text,)*
                }
            }
        }
    };
}

error_codes! {
    /// Success.
    #[default]
    None = 0, false, "no error";
    /// No such topic or partition here; it may just have been created.
    UnknownTopicOrPartition = 1, true, "this broker knows no such topic or partition";
    /// The name is taken.
    TopicExists = 2, false, "a topic of this name exists already";
    /// The name breaks the rules.
    InvalidTopicName = 3, false, "the topic's name breaks the rules";
    /// Not 1 to 1000, or fewer than there are.
    InvalidPartitions = 4, false, "the number of partitions is not allowed";
    /// A value outside its range, or values that contradict each other.
    InvalidConfig = 5, false, "the configuration is not allowed";
    /// Above the topic's limit.
    MessageTooLarge = 6, false, "the message is larger than its topic allows";
    /// A checksum differs: damaged on its way.
    CorruptBatch = 7, true, "the batch was damaged on its way: its checksum differs";
    /// Well transmitted, but not a batch by the rules.
    InvalidBatch = 8, false, "the batch breaks the rules of its format";
    /// Outside log start to log end.
    OffsetOutOfRange = 9, false, "the offset lies outside the partition's log";
    /// Another broker leads the partition.
    NotLeader = 10, true, "this broker does not lead the partition: refresh the metadata";
    /// No such request.
    UnknownApi = 11, false, "the broker does not know this request";
    /// The request is known, its version is not.
    UnsupportedVersion = 12, false, "the broker does not speak this version of the request";
    /// Not a frame by the rules.
    CorruptFrame = 13, false, "the frame breaks the rules of its format";
    /// Above the limit of frames.
    FrameTooLarge = 14, false, "the frame is larger than the broker allows";
    /// A queue is full.
    Overloaded = 15, true, "the broker has as much in flight as it may: try again later";
    /// No space for more.
    DiskFull = 16, true, "the broker's disk is full: try again when there is space";
    /// On its way down.
    ShuttingDown = 17, true, "the broker is shutting down";
    /// A write to stable storage failed; the shard stops.
    StorageFailed = 18, true, "the broker's storage failed: nothing unacknowledged is promised";
    /// Acknowledged data of the partition is damaged; it takes no more until an operator decides.
    PartitionLossy = 19, false, "acknowledged data of the partition was damaged: an operator must decide";
    /// More copies than brokers, or none.
    InvalidReplicationFactor = 20, false, "the replication factor is not allowed";
    /// Not done within the time asked for; it may be done yet.
    TimedOut = 21, true, "not done in time: it may be done yet";
    /// Asked of a shard that does not own the partition and does not forward.
    WrongShard = 22, true, "another shard of this broker owns the partition: refresh the metadata";
    /// Stored bytes do not have their checksum.
    DataCorrupt = 23, false, "stored data of the partition is damaged";
    /// A fault in the broker.
    Internal = 24, false, "the broker failed at this request";
    /// The shard has as many as it may.
    TooManyConnections = 25, true, "the broker has as many connections as it may";
    /// The cluster has as many as it may.
    TooManyTopics = 26, false, "the cluster has as many topics as it may";
    /// A value of the request is outside its limits.
    InvalidRequest = 27, false, "the request breaks a rule";
    /// Not, or no longer, a member: join again.
    UnknownMember = 28, false, "the group has no such member: join again";
    /// The member's epoch is not the one it was given: it was removed, or another has its id. Join again.
    FencedMemberEpoch = 29, false, "the member's epoch is not the one it was given: join again";
    /// The member's epoch is an earlier one: a heartbeat brings the present one.
    StaleMemberEpoch = 30, false, "the member's epoch has passed: send a heartbeat first";
    /// Another member has the instance's name and lives.
    UnreleasedInstance = 31, true, "another member has this instance id and has not left: try again after its session timeout";
    /// Another member took over the instance's name.
    FencedInstance = 32, false, "another member took over this instance id";
    /// Another shard or broker keeps the group.
    NotCoordinator = 33, true, "another coordinator keeps the group: find it again";
    /// The group's state is being read.
    CoordinatorLoading = 34, true, "the coordinator is still reading the group's state";
    /// No such group.
    GroupNotFound = 35, false, "there is no such group";
    /// It has members.
    GroupNotEmpty = 36, false, "the group has members";
    /// The id breaks the rules.
    InvalidGroupId = 37, false, "the group's id breaks the rules";
    /// It has as many members as it may.
    GroupFull = 38, false, "the group has as many members as it may";
    /// The coordinator keeps as many as it may.
    TooManyGroups = 39, false, "there are as many groups as there may be";
    /// No such assignor, or not the one of the group.
    UnsupportedAssignor = 40, false, "the group cannot use this assignor";
    /// Above the limit.
    OffsetMetadataTooLarge = 41, false, "the metadata of the offset is too large";
    /// The offset lies before the one that the member committed already.
    CommitBehind = 42, false, "the offset lies before the committed one";
    /// The member does not own the partition.
    PartitionNotOwned = 43, false, "the member does not own the partition";
    /// A member owns the partition.
    PartitionOwned = 44, false, "a member of the group owns the partition";
    /// Records of the partition are parked.
    PartitionParked = 45, false, "records of the partition are parked: clear them too, or let them be handled";
    /// The group's policy stopped the partition.
    PartitionStopped = 46, false, "the partition is stopped for this group: an operator must reset it";
    /// As much is parked as may be.
    ParkedFull = 47, true, "as many records are parked as may be: retries must make room first";
    /// A sequence is missing.
    OutOfOrderSequence = 48, false, "the batch does not follow the producer's last one";
    /// A later instance of the producer has taken over.
    ProducerFenced = 49, false, "a later instance of the producer has taken over";
    /// Nothing is remembered of the producer, and its sequence is not the first.
    UnknownProducer = 50, false, "nothing is remembered of the producer: it needs a new epoch";
    /// There are as many named producers as there may be.
    TooManyProducers = 51, false, "there are as many named producers as there may be";
    /// The topic is the broker's own.
    InternalTopic = 52, false, "the topic is the broker's own: it can be read, not changed";
    /// Records of the group are on their way to their dead-letter topic.
    DeadLettersPending = 53, true, "dead letters of the group are not written yet: try again when they are";
    /// A code of a newer version.
    Unrecognised = 65535, false, "an error this version does not know";
}

impl ErrorCode {
    /// The number on the wire.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// Whether it is success.
    pub const fn is_none(self) -> bool {
        matches!(self, ErrorCode::None)
    }

    /// `Ok` for success, so that `?` can be used.
    ///
    /// # Errors
    /// The code itself when it is not success.
    pub const fn into_result(self) -> Result<(), ErrorCode> {
        if self.is_none() { Ok(()) } else { Err(self) }
    }
}

impl std::error::Error for ErrorCode {}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Archive for ErrorCode {
    type Archived = u16_le;
    type Resolver = ();

    fn resolve(&self, (): (), out: Place<u16_le>) {
        out.write(u16_le::from_native(self.code()));
    }
}

impl<S: Fallible + ?Sized> Serialize<S> for ErrorCode {
    fn serialize(&self, _: &mut S) -> Result<(), S::Error> {
        Ok(())
    }
}

impl<D: Fallible + ?Sized> Deserialize<ErrorCode, D> for u16_le {
    fn deserialize(&self, _: &mut D) -> Result<ErrorCode, D::Error> {
        Ok(ErrorCode::from_code(self.to_native()))
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn numbers_are_read_back_and_unknown_ones_are_not_retried() {
        for &code in ErrorCode::ALL {
            assert_eq!(ErrorCode::from_code(code.code()), code);
            assert!(!code.text().is_empty());
        }
        assert_eq!(ErrorCode::from_code(4711), ErrorCode::Unrecognised);
        assert!(!ErrorCode::Unrecognised.retryable());
        assert!(ErrorCode::Overloaded.retryable());
        assert!(ErrorCode::DiskFull.retryable());
        assert!(ErrorCode::ShuttingDown.retryable());
    }
}
