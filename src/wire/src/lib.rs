//! Bytes to frames and batches, and back.
