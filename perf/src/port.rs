//! Ports for servers of our own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Ports that ordinary servers do not use begin here.
const PORT_MIN: u16 = 10_000;
/// What the kernel does when it does not say.
const EPHEMERAL_START_DEFAULT: u16 = 32_768;
/// Fewer ports than this below the ephemeral range: its lower end was moved down, and ports are taken from below as far as they go.
const PORTS_MIN: u16 = 1_000;
const PRIVILEGED_END: u16 = 1_024;

/// A loopback address whose port is free and stays free for a server that listens, is killed and listens again.
///
/// The port lies below the range from which the kernel gives ports to clients. A port of that range is lost while its server is down:
/// any connection that is opened may get it, also one to that very port, which then talks to itself.
///
/// # Errors
/// When no port can be bound.
pub fn free() -> std::io::Result<SocketAddr> {
    let range = range(&std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default());
    // Each call goes on where the last one stopped, processes begin at different places: a port is not given twice while its server
    // is not yet, or no longer, listening.
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let count = u32::from(range.end - range.start);
    let first = std::process::id().wrapping_mul(7_919);
    let mut refused = None;
    for _ in 0..count {
        let turn = first.wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed)) % count;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, range.start + turn as u16));
        match TcpListener::bind(address) {
            Ok(_) => return Ok(address),
            Err(error) => refused = Some(error),
        }
    }
    Err(refused.unwrap_or_else(|| std::io::ErrorKind::AddrNotAvailable.into()))
}

/// The ports to choose from; `text` is the kernel's range, two numbers.
fn range(text: &str) -> Range<u16> {
    let start = text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(EPHEMERAL_START_DEFAULT);
    if start >= PORT_MIN + PORTS_MIN { PORT_MIN..start } else { PRIVILEGED_END..start.max(PRIVILEGED_END + PORTS_MIN) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_lie_below_those_the_kernel_gives_to_clients() {
        assert_eq!(range("32768\t60999\n"), 10_000..32_768);
        assert_eq!(range(""), 10_000..32_768);
        assert_eq!(range("15000 65535"), 10_000..15_000);
        assert_eq!(range("5000 65535"), 1_024..5_000);
        assert_eq!(range("1024 65535"), 1_024..2_024);
    }

    #[test]
    fn a_port_in_use_is_passed_over_and_none_is_given_twice() {
        let first = free().unwrap();
        let kept = TcpListener::bind(first).unwrap();
        let others: Vec<SocketAddr> = (0..50).map(|_| free().unwrap()).collect();
        assert!(!others.contains(&first));
        let different: std::collections::BTreeSet<u16> = others.iter().map(SocketAddr::port).collect();
        assert_eq!(different.len(), others.len());
        drop(kept);
    }

    /// While its server is down, connections to a port of the kernel's range can end up talking to themselves and keep the port.
    #[test]
    fn a_server_that_is_down_is_refused_however_often_it_is_tried() {
        let address = free().unwrap();
        for _ in 0..2_000 {
            assert!(std::net::TcpStream::connect(address).is_err());
        }
        TcpListener::bind(address).unwrap();
    }
}
