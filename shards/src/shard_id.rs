use std::fmt;

/// One pinned executor of this process: 0, 1, 2 … in the order of the core plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl ShardId {
    /// The sender of a message that an ordinary thread posted through a [`crate::mesh::Remote`].
    pub const OUTSIDE: ShardId = ShardId(u16::MAX);

    /// The place of this shard in a list with one entry per shard.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == ShardId::OUTSIDE { formatter.write_str("outside") } else { write!(formatter, "shard {}", self.0) }
    }
}
