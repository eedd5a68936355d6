//! Micro-benchmarks.
