//! How the partitions of a group's topics are spread over its members.

use std::fmt;

use rkyv::{Archive, Deserialize, Serialize};

/// A way to spread partitions. The coordinator computes it; members only name it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Archive, Serialize, Deserialize)]
#[repr(u8)]
pub enum Assignor {
    /// Even, and as few partitions move as can be.
    #[default]
    Sticky = 0,
    /// Of each topic every member gets a run of neighbours: partitions of the same number in several topics come together.
    Range = 1,
    /// One after the other, over all topics.
    RoundRobin = 2,
}

impl Assignor {
    /// Every assignor.
    pub const ALL: [Assignor; 3] = [Assignor::Sticky, Assignor::Range, Assignor::RoundRobin];

    /// Its name in configuration and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Assignor::Sticky => "sticky",
            Assignor::Range => "range",
            Assignor::RoundRobin => "round-robin",
        }
    }

    /// The assignor of that name.
    pub fn from_name(name: &str) -> Option<Assignor> {
        Assignor::ALL.into_iter().find(|assignor| assignor.name() == name)
    }
}

impl fmt::Display for Assignor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
