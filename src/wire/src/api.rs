//! The requests by number.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};

/// A request, as numbered in the frame header. Numbers are never used again for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Api {
    /// Versions, identity, the shard wanted: the first request of a connection.
    Hello = 1,
    /// Topics, partitions, leaders, brokers.
    Metadata = 2,
    /// Makes a topic.
    CreateTopic = 3,
    /// Removes a topic and its data.
    DeleteTopic = 4,
    /// Changes a topic's configuration.
    AlterTopic = 5,
    /// A topic's configuration and partitions.
    DescribeTopic = 6,
    /// The topics by name.
    ListTopics = 7,
    /// Deletes the records before an offset.
    DeleteRecords = 8,
    /// Appends batches.
    Produce = 10,
    /// Reads batches.
    Fetch = 11,
    /// Offsets by position or time.
    ListOffsets = 12,
    /// An identity by which a producer's retries are recognised.
    InitProducer = 13,
    /// Brokers, shards, placement.
    DescribeCluster = 20,
    /// The broker's effective configuration.
    DescribeConfig = 21,
    /// Who keeps a consumer group.
    FindCoordinator = 30,
    /// Joins a group, stays in it, leaves it.
    GroupHeartbeat = 31,
    /// How far a group has come.
    CommitOffsets = 32,
    /// Where a group goes on.
    FetchOffsets = 33,
    /// The groups by name.
    ListGroups = 34,
    /// Members, offsets and retry state of a group.
    DescribeGroup = 35,
    /// Forgets a group.
    DeleteGroup = 36,
    /// Moves a group by hand.
    AlterOffsets = 37,
    /// Changes a group's policy.
    AlterGroup = 38,
    /// What became of delivered records.
    Settle = 40,
    /// Parked records that are due again.
    TakeRetries = 41,
}

impl Api {
    /// Every request this crate knows.
    pub const ALL: [Api; 25] = [
        Api::Hello,
        Api::Metadata,
        Api::CreateTopic,
        Api::DeleteTopic,
        Api::AlterTopic,
        Api::DescribeTopic,
        Api::ListTopics,
        Api::DeleteRecords,
        Api::Produce,
        Api::Fetch,
        Api::ListOffsets,
        Api::InitProducer,
        Api::DescribeCluster,
        Api::DescribeConfig,
        Api::FindCoordinator,
        Api::GroupHeartbeat,
        Api::CommitOffsets,
        Api::FetchOffsets,
        Api::ListGroups,
        Api::DescribeGroup,
        Api::DeleteGroup,
        Api::AlterOffsets,
        Api::AlterGroup,
        Api::Settle,
        Api::TakeRetries,
    ];

    /// The request with that number, if this crate knows it.
    pub fn from_code(code: u16) -> Option<Api> {
        Api::ALL.into_iter().find(|api| api.code() == code)
    }

    /// The number in the frame header.
    pub const fn code(self) -> u16 {
        self as u16
    }

    /// The versions this crate speaks, smallest and largest.
    pub const fn versions(self) -> (u16, u16) {
        (1, 1)
    }

    /// The versions this crate speaks, as Hello carries them.
    pub const fn range(self) -> ApiRange {
        let (version_min, version_max) = self.versions();
        ApiRange { api: self.code(), version_min, version_max }
    }

    /// The ranges of all requests: what the Hello of a client carries. A broker answers with those that it serves.
    pub fn ranges() -> Vec<ApiRange> {
        Api::ALL.map(Api::range).to_vec()
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The versions of one request that a side speaks. The number, not [`Api`]: the other side may know more requests than we do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ApiRange {
    /// Number of the request.
    pub api: u16,
    /// Smallest version.
    pub version_min: u16,
    /// Largest version.
    pub version_max: u16,
}

impl ApiRange {
    /// The largest version of `api` that `ours` and `theirs` both speak.
    pub fn common(api: Api, theirs: &[ApiRange]) -> Option<u16> {
        let (version_min, version_max) = api.versions();
        let range = theirs.iter().find(|range| range.api == api.code())?;
        let version = range.version_max.min(version_max);
        (version >= range.version_min.max(version_min)).then_some(version)
    }
}
