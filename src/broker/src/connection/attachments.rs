use shards::buffer::Shared;
use std::collections::VecDeque;

/// The bytes behind a body: one piece, or several where each begins with a batch.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    pieces: VecDeque<Shared>,
}

impl Attachments {
    pub(super) fn push(&mut self, piece: Shared) {
        self.pieces.push_back(piece);
    }

    /// Takes the next batch, of a length that the body states. Its piece is let go with the last batch in it.
    pub(crate) fn take(&mut self, bytes: usize) -> Shared {
        let piece = self.pieces.pop_front().expect("the lengths in the body add up to the attachments");
        assert!(bytes <= piece.len(), "no batch stands in two pieces");
        if bytes < piece.len() {
            self.pieces.push_front(piece.slice(bytes..));
        }
        piece.slice(..bytes)
    }
}

impl From<Shared> for Attachments {
    fn from(whole: Shared) -> Self {
        Attachments { pieces: VecDeque::from([whole]) }
    }
}
