//! What failed and is tried again: parked keys, due times, dead letters.
