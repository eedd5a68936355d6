//! Values that say who they are: from its number follow a message's length and every byte.

use crate::draw::Draw;

/// Mostly small, now and then large enough for the log's direct writes.
fn length(number: u64) -> usize {
    let mut draw = Draw::new(number);
    let limit = match draw.below(400) {
        0 => 900_000,
        1..=20 => 40_000,
        _ => 600,
    };
    draw.below(limit) as usize
}

/// The value with that number.
pub(crate) fn value(number: u64) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    let end = bytes.len() + length(number);
    let mut draw = Draw::new(!number);
    while bytes.len() < end {
        let word = draw.next();
        // Half of the words repeat, so that compression has something to do.
        let repeats = if word.is_multiple_of(2) { 4 } else { 1 };
        for _ in 0..repeats {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes.truncate(end);
    bytes
}

/// The number of a value that was read.
///
/// # Errors
/// What is wrong with its bytes.
pub(crate) fn number(bytes: Option<&[u8]>) -> Result<u64, String> {
    let bytes = bytes.ok_or("no value")?;
    let head = bytes.first_chunk().ok_or_else(|| format!("{} bytes", bytes.len()))?;
    let number = u64::from_be_bytes(*head);
    let expected = value(number);
    if bytes.len() != expected.len() {
        return Err(format!("message {number} has {} bytes, {} were sent", bytes.len(), expected.len()));
    }
    match bytes.iter().zip(&expected).position(|(found, sent)| found != sent) {
        Some(position) => Err(format!("message {number} differs from what was sent at byte {position}")),
        None => Ok(number),
    }
}
