//! What to send next, and what a reply means: state and decisions without sockets, tasks or clocks.

pub(crate) mod backoff;
pub(crate) mod beginning;
pub(crate) mod cluster_map;
pub(crate) mod fetching;
pub(crate) mod membership;
pub(crate) mod producing;
#[cfg(test)]
mod random;
pub(crate) mod retrying;
#[cfg(test)]
mod samples;
