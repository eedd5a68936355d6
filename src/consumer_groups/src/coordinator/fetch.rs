//! Where a group goes on.

use wire::{ErrorCode, FetchOffsetsReply, FetchOffsetsRequest, FetchedOffset, PartitionKey};

use super::Coordinator;
use crate::group::Group;
use crate::limits::REPLY_BYTES_MAX;

impl Coordinator {
    pub(super) fn fetch_offsets(&self, request: &FetchOffsetsRequest) -> FetchOffsetsReply {
        let mut reply = FetchOffsetsReply { error: ErrorCode::None, message: None, partitions: Vec::new(), more: false };
        if let Err(error) = request.validate() {
            (reply.error, reply.message) = (error.code, Some(error.to_string()));
            return reply;
        }
        let group = self.groups.get(request.group.as_str());
        let wanted: Box<dyn Iterator<Item = PartitionKey>> = match (&request.partitions, group) {
            (Some(named), _) => Box::new(named.iter().copied()),
            (None, Some(group)) => Box::new(group.partitions().into_iter()),
            (None, None) => Box::new(std::iter::empty()),
        };
        let mut bytes = 0;
        for partition in wanted.filter(|&partition| request.after.is_none_or(|after| partition > after)) {
            if bytes >= REPLY_BYTES_MAX {
                reply.more = true;
                break;
            }
            let fetched = fetched(group, partition);
            bytes += fetched_bytes(&fetched);
            reply.partitions.push(fetched);
        }
        reply
    }
}

fn fetched(group: Option<&Group>, partition: PartitionKey) -> FetchedOffset {
    let committed = group.and_then(|group| group.offsets.get(partition)).map(|committed| committed.position.clone());
    FetchedOffset {
        topic: partition.topic,
        partition: partition.partition,
        committed,
        parked: Vec::new(),
        held: Vec::new(),
        stopped: false,
    }
}

/// What it takes in a reply, roughly.
fn fetched_bytes(fetched: &FetchedOffset) -> usize {
    let metadata = fetched.committed.as_ref().and_then(|committed| committed.metadata.as_ref()).map_or(0, String::len);
    size_of::<FetchedOffset>() + metadata
}
