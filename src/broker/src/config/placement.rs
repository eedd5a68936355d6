//! Which shard owns a partition: the first matching rule names the shards, the hash of the topic picks among them.

use super::Placement;
use globset::{GlobBuilder, GlobMatcher};
use wire::{PartitionIndex, TopicId};

/// The placement rules, compiled. The same on every shard, so that all agree without asking.
#[derive(Clone, Debug)]
pub struct PlacementRules {
    rules: Vec<(GlobMatcher, Vec<u16>)>,
    all: Vec<u16>,
}

impl PlacementRules {
    /// Compiles `rules` for a broker of `shard_count` shards. The error is the text of the pattern's fault.
    ///
    /// # Panics
    /// When `shard_count` is 0.
    pub fn new(rules: &[Placement], shard_count: u16) -> Result<Self, globset::Error> {
        assert!(shard_count > 0, "a broker has at least one shard");
        let compile = |rule: &Placement| {
            let glob = GlobBuilder::new(&rule.topic).literal_separator(false).build()?;
            Ok((glob.compile_matcher(), rule.shards.as_slice().to_vec()))
        };
        Ok(PlacementRules { rules: rules.iter().map(compile).collect::<Result<_, _>>()?, all: (0..shard_count).collect() })
    }

    /// The shards among which the partitions of `topic` are spread.
    pub fn shards_of(&self, topic: &str) -> &[u16] {
        self.rules.iter().find(|(glob, _)| glob.is_match(topic)).map_or(&self.all, |(_, shards)| shards)
    }
}

/// The owner among `shards`: neighbouring partitions of one topic land on different shards, and topics start at different places.
pub fn owner(shards: &[u16], topic: TopicId, partition: PartitionIndex) -> u16 {
    assert!(!shards.is_empty(), "a partition has an owner");
    let start = u64::from_le_bytes(topic.0[8..].try_into().expect("eight of sixteen bytes"));
    let start = start ^ u64::from_le_bytes(topic.0[..8].try_into().expect("eight of sixteen bytes"));
    // The finaliser of splitmix64: topic ids may be sequential in their low or high bytes.
    let mixed = (start ^ (start >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    let mixed = (mixed ^ (mixed >> 31)).wrapping_add(u64::from(partition.0));
    let count = u64::try_from(shards.len()).expect("a count of shards fits 64 bits");
    shards[usize::try_from(mixed % count).expect("below the count of shards")]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(topic: &str, shards: &str) -> Placement {
        Placement { topic: topic.to_owned(), shards: shards.parse().unwrap() }
    }

    #[test]
    fn first_match_wins() {
        let rules = PlacementRules::new(&[rule("payments.*", "0-1"), rule("*", "2")], 4).unwrap();
        assert_eq!(rules.shards_of("payments.eu"), [0, 1]);
        assert_eq!(rules.shards_of("orders"), [2]);
        assert_eq!(PlacementRules::new(&[], 3).unwrap().shards_of("orders"), [0, 1, 2]);
    }

    #[test]
    fn partitions_of_a_topic_spread_evenly() {
        let shards = [0, 1, 2, 3];
        let mut counts = [0; 4];
        for partition in 0..100 {
            counts[usize::from(owner(&shards, TopicId([7; 16]), PartitionIndex(partition)))] += 1;
        }
        assert_eq!(counts, [25; 4]);
    }

    #[test]
    fn single_partition_topics_spread() {
        let shards = [0, 1, 2, 3];
        let mut counts = [0_i32; 4];
        for n in 0..4000_u32 {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&n.to_le_bytes());
            counts[usize::from(owner(&shards, TopicId(id), PartitionIndex(0)))] += 1;
        }
        assert!(counts.iter().all(|count| (count - 1000).abs() < 200), "{counts:?}");
    }
}
