//! Why a request is refused: a code, and words where they help.

use wire::{ErrorCode, FieldError};

/// A refusal, as replies carry it.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub code: ErrorCode,
    pub message: Option<String>,
}

impl From<ErrorCode> for Refusal {
    fn from(code: ErrorCode) -> Refusal {
        Refusal { code, message: None }
    }
}

impl From<FieldError> for Refusal {
    fn from(error: FieldError) -> Refusal {
        Refusal { code: error.code, message: Some(error.to_string()) }
    }
}

/// Code and words of a result; success has no words.
pub(crate) fn answer(result: Result<(), Refusal>) -> (ErrorCode, Option<String>) {
    match result {
        Ok(()) => (ErrorCode::None, None),
        Err(refusal) => (refusal.code, refusal.message),
    }
}
