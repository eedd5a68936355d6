//! InitProducer: the identity by which a producer's retries are recognised.

use rkyv::{Archive, Deserialize, Serialize};

use crate::body::bodies;
use crate::error_code::ErrorCode;
use crate::ids::{ProducerEpoch, ProducerId};
use crate::messages::field::FieldError;
use crate::names::check_producer_name;

/// A producer id with its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct ProducerIdentity {
    /// The producer.
    pub id: ProducerId,
    /// Its epoch: of two instances of a named producer the later one has the greater.
    pub epoch: ProducerEpoch,
}

/// Asks for an identity.
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct InitProducerRequest {
    /// A name that outlives the process: the next instance that gives it gets the same id with a greater epoch, and this one is fenced.
    /// `None` for an id that nobody else ever gets.
    pub name: Option<String>,
    /// The identity that this instance has, when it asks again: it gets a new one of the same name unless another instance has fenced it.
    pub current: Option<ProducerIdentity>,
}

impl InitProducerRequest {
    /// Checks the fields.
    ///
    /// # Errors
    /// The name, when it breaks the rules.
    pub fn validate(&self) -> Result<(), FieldError> {
        self.name.as_deref().map_or(Ok(()), check_producer_name)
    }
}

/// Answers [`InitProducerRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Archive, Serialize, Deserialize)]
pub struct InitProducerReply {
    /// Whether there is an identity; [`ErrorCode::ProducerFenced`] when a later instance of the name has one.
    pub error: ErrorCode,
    /// More about the error.
    pub message: Option<String>,
    /// The producer; -1 with an error.
    pub producer_id: ProducerId,
    /// Its epoch; -1 with an error.
    pub producer_epoch: ProducerEpoch,
}

bodies! {
    InitProducerRequest = InitProducer => InitProducerReply;
}
