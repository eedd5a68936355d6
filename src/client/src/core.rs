//! What to send next, and what a reply means: state and decisions without sockets, tasks or clocks.

pub(crate) mod backoff;
pub(crate) mod cluster_map;
pub(crate) mod fetching;
pub(crate) mod producing;
#[cfg_attr(not(test), expect(dead_code, reason = "the group consumer that drives it is built on it next"))]
pub(crate) mod retrying;
#[cfg(test)]
mod samples;
