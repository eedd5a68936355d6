//! What CI runs.
