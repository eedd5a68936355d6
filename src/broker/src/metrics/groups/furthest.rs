//! A bounded list of what is furthest behind, and how many were left out.

use super::{GroupLevel, GroupPartitionLevel};
use std::{cmp::Ordering, collections::BTreeSet};

/// What is behind, and by how much.
pub(crate) trait Behind: Clone + Eq {
    /// Which of two is named when there is room for one: `Less` for the one further behind; of equals the first by name, so that a broker at rest
    /// shows the same again and again.
    fn order(&self, other: &Self) -> Ordering;
}

/// Of all that were added, those furthest behind.
#[derive(Clone, Debug)]
pub(crate) struct Furthest<T: Behind> {
    max: usize,
    kept: BTreeSet<Ordered<T>>,
    left_out: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ordered<T: Behind>(T);

impl<T: Behind> Ord for Ordered<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.order(&other.0)
    }
}

impl<T: Behind> PartialOrd for Ordered<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Behind> Furthest<T> {
    pub(crate) fn new(max: usize) -> Self {
        Furthest { max, kept: BTreeSet::new(), left_out: 0 }
    }

    pub(crate) fn add(&mut self, one: T) {
        self.kept.insert(Ordered(one));
        if self.kept.len() > self.max {
            self.kept.pop_last();
            self.left_out += 1;
        }
    }

    /// Adds those of another list.
    pub(crate) fn add_all(&mut self, other: &Self) {
        self.left_out += other.left_out;
        other.iter().for_each(|one| self.add(one.clone()));
    }

    /// Those furthest behind.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.kept.iter().map(|ordered| &ordered.0)
    }

    /// How many there was no room for.
    pub(crate) fn left_out(&self) -> u64 {
        self.left_out
    }
}

impl Behind for GroupLevel {
    fn order(&self, other: &Self) -> Ordering {
        other.lag_records.cmp(&self.lag_records).then_with(|| self.group.cmp(&other.group))
    }
}

impl Behind for GroupPartitionLevel {
    fn order(&self, other: &Self) -> Ordering {
        let behind = |level: &Self| (level.lag_records.unwrap_or(0), level.parked_records);
        let name = |level: &Self| (level.group.clone(), level.topic.clone(), level.partition);
        behind(other).cmp(&behind(self)).then_with(|| name(self).cmp(&name(other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use consumer_groups::{GroupId, retry::RetryCounts};

    #[test]
    fn the_furthest_behind_are_kept_and_the_others_counted() {
        let level = |name: &str, lag_records| GroupLevel {
            group: GroupId::from(name),
            lag_records,
            members: 0,
            rebalances: 0,
            retries: RetryCounts::default(),
        };
        let mut furthest = Furthest::new(2);
        let mut other = Furthest::new(2);
        for (name, lag) in [("a", 1), ("b", 5), ("c", 1)] {
            furthest.add(level(name, lag));
        }
        for (name, lag) in [("d", 9), ("e", 1), ("f", 0)] {
            other.add(level(name, lag));
        }
        let names = |furthest: &Furthest<GroupLevel>| furthest.iter().map(|level| level.group.to_string()).collect::<Vec<_>>();
        assert_eq!((names(&furthest), furthest.left_out()), (vec!["b".to_owned(), "a".to_owned()], 1));
        furthest.add_all(&other);
        assert_eq!((names(&furthest), furthest.left_out()), (vec!["d".to_owned(), "b".to_owned()], 4));
    }
}
