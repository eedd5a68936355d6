//! One partition after the other, over all topics, goes to one member after the other.

use wire::PartitionKey;

use super::Demand;

pub(super) fn assign(demand: &Demand) -> Vec<Vec<PartitionKey>> {
    let count = demand.members.len();
    let mut assigned = vec![Vec::new(); count];
    let mut turn = 0;
    for partition in demand.partitions() {
        let taker =
            (turn..turn + count).map(|member| member % count).find(|&member| demand.members[member].wants(partition.topic));
        if let Some(member) = taker {
            assigned[member].push(partition);
            turn = member + 1;
        }
    }
    assigned
}
