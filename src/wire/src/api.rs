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
    /// Appends batches.
    Produce = 10,
    /// Reads batches.
    Fetch = 11,
    /// Offsets by position or time.
    ListOffsets = 12,
    /// Brokers, shards, placement.
    DescribeCluster = 20,
    /// The broker's effective configuration.
    DescribeConfig = 21,
}

impl Api {
    /// Every request this crate knows.
    pub const ALL: [Api; 12] = [
        Api::Hello,
        Api::Metadata,
        Api::CreateTopic,
        Api::DeleteTopic,
        Api::AlterTopic,
        Api::DescribeTopic,
        Api::ListTopics,
        Api::Produce,
        Api::Fetch,
        Api::ListOffsets,
        Api::DescribeCluster,
        Api::DescribeConfig,
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

    /// The ranges of all requests: what Hello carries.
    pub fn ranges() -> Vec<ApiRange> {
        Api::ALL
            .into_iter()
            .map(|api| {
                let (version_min, version_max) = api.versions();
                ApiRange { api: api.code(), version_min, version_max }
            })
            .collect()
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
