//! Of each topic every member gets a run of neighbours, so that partitions of the same number in several topics come together.

use wire::{PartitionIndex, PartitionKey};

use super::Demand;

pub(super) fn assign(demand: &Demand) -> Vec<Vec<PartitionKey>> {
    let mut assigned = vec![Vec::new(); demand.members.len()];
    for (&topic, &count) in &demand.topics {
        let takers: Vec<usize> = (0..demand.members.len()).filter(|&member| demand.members[member].wants(topic)).collect();
        let Some(share) = (count as usize).checked_div(takers.len()) else { continue };
        let with_one_more = count as usize % takers.len();
        let mut next = 0;
        for (position, &member) in takers.iter().enumerate() {
            let end = next + share + usize::from(position < with_one_more);
            assigned[member].extend((next..end).map(|number| PartitionKey::new(topic, PartitionIndex(number as u32))));
            next = end;
        }
    }
    assigned
}
