//! The load generator, limits and bars.
