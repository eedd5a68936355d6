//! Identities of producers: given by the metadata thread, and what each shard must know of the named ones.
//!
//! A named producer's new instance has its epoch when every shard knows it: from then on no shard appends what an older instance sends. Producers without
//! a name are told apart by their ids alone; a partition refuses an epoch below the one that it has seen last.

use crate::{
    admin::ask_metadata,
    connection::Incoming,
    metadata::{Answered, NamedProducer, Request},
    shard::Shard,
};
use hashbrown::HashMap;
use std::rc::Rc;
use wire::{BatchHeader, ErrorCode, InitProducerReply, InitProducerRequest, ProducerEpoch, ProducerId};

/// Answers with an identity.
pub(crate) async fn init(shard: Rc<Shard>, request: InitProducerRequest, incoming: Incoming) {
    let reply = match ask_metadata(&shard, Request::Producer(request)).await {
        Ok(Answered::Producer(identity)) => {
            InitProducerReply { error: ErrorCode::None, message: None, producer_id: identity.id, producer_epoch: identity.epoch }
        }
        Ok(other) => unreachable!("a producer was asked for, and the answer is {other:?}"),
        Err(refusal) => refused(refusal.code, Some(refusal.message)),
    };
    incoming.into_reply_to().send(&reply);
}

/// The answer without an identity.
pub(crate) fn refused(error: ErrorCode, message: Option<String>) -> InitProducerReply {
    InitProducerReply { error, message, producer_id: ProducerId::NONE, producer_epoch: ProducerEpoch::NONE }
}

/// The epochs of named producers.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    latest: HashMap<ProducerId, ProducerEpoch>,
}

impl Fences {
    /// A named producer has a new instance.
    pub(crate) fn put(&mut self, producer: &NamedProducer) {
        self.latest.extend(producer.fences());
    }

    /// A named producer is forgotten.
    pub(crate) fn forget(&mut self, producer: &NamedProducer) {
        for (id, _) in producer.fences() {
            self.latest.remove(&id);
        }
    }

    /// The latest epoch of the producer of a batch, if that of the batch is older.
    pub(crate) fn fencing(&self, header: &BatchHeader) -> Option<ProducerEpoch> {
        if self.latest.is_empty() || header.producer_id == ProducerId::NONE {
            return None;
        }
        self.latest.get(&header.producer_id).copied().filter(|latest| header.producer_epoch < *latest)
    }
}
