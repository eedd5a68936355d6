//! Locks that end with the process, however it ends.

use rustix::fs::{FlockOperation, flock};
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, Write},
    net::SocketAddr,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr as UnixAddr, UnixListener},
    },
    path::{Path, PathBuf},
    time::Duration,
};

/// Another process holds what this one needs.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// A lock file is held.
    #[error("{path} is in use by {holder}: one broker at a time may use a data directory; stop it, or choose another directory")]
    Held {
        /// The lock file.
        path: PathBuf,
        /// The holder's own words.
        holder: String,
    },
    /// The lock file cannot be opened or locked.
    #[error("cannot lock {path}: {source}")]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The port is taken.
    #[error("cannot listen on {address} ({key}): {source}")]
    Port {
        /// The address asked for.
        address: SocketAddr,
        /// Its key in the configuration.
        key: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// How often a lock file or a port that is in use is tried again, and the pause before each. A process that was killed holds its locks
/// until its memory is given back; its listener outlives even that, until the kernel has ended the requests of its rings: some hundred
/// milliseconds were measured.
const LOCK_RETRIES: u32 = 20;
const PORT_RETRIES: u32 = 50;
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// An exclusive `flock` on a file, released when dropped or when the process ends.
#[derive(Debug)]
pub(crate) struct FileLock {
    _file: File,
}

/// Locks `path`, waiting a little for a broker that was killed and is not yet gone, or says who holds it.
pub(crate) fn lock_file(path: &Path) -> Result<FileLock, LockError> {
    for retry in 0..LOCK_RETRIES {
        match try_lock_file(path) {
            Err(LockError::Held { path, holder }) => {
                if retry == 0 {
                    tracing::info!(
                        "{} is in use by {holder}: waiting for it for up to {:?}",
                        path.display(),
                        RETRY_PAUSE * LOCK_RETRIES
                    );
                }
                #[expect(clippy::disallowed_methods, reason = "no shard runs yet")]
                std::thread::sleep(RETRY_PAUSE);
            }
            locked => return locked,
        }
    }
    try_lock_file(path)
}

fn try_lock_file(path: &Path) -> Result<FileLock, LockError> {
    let io_error = |source| LockError::Io { path: path.to_owned(), source };
    let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(io_error)?;
    if let Err(errno) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
        if errno != rustix::io::Errno::WOULDBLOCK {
            return Err(io_error(errno.into()));
        }
        let mut holder = String::new();
        // The name of the holder is a courtesy: a lock without one is still held.
        let readable = file.read_to_string(&mut holder).is_ok();
        let holder = if readable && !holder.trim().is_empty() { holder.trim().to_owned() } else { "another process".to_owned() };
        return Err(LockError::Held { path: path.to_owned(), holder });
    }
    file.set_len(0).map_err(io_error)?;
    file.rewind().map_err(io_error)?;
    writeln!(file, "corelane, process {}", std::process::id()).map_err(io_error)?;
    Ok(FileLock { _file: file })
}

/// A port that is ours: no second broker can share it by SO_REUSEPORT.
///
/// The shards' listeners share the port by SO_REUSEPORT, which a second broker of the same user could join unseen. So the port is
/// locked by an abstract Unix socket named after it (in the same network namespace as the port itself, gone with the process), and
/// a listener of any other program is found by binding once without SO_REUSEPORT.
#[derive(Debug)]
pub(crate) struct PortLock {
    /// The address with its port, also when port 0 was asked for.
    pub(crate) address: SocketAddr,
    _name: UnixListener,
    /// Keeps the port until the shards listen. It never listens itself, so that it gets no connection.
    _reserved: Socket,
}

/// Reserves `address` for the listeners of this process, waiting a little for one that is in use.
pub(crate) fn reserve_port(address: SocketAddr, key: &'static str) -> Result<PortLock, LockError> {
    reserve_port_within(address, key, PORT_RETRIES)
}

fn reserve_port_within(address: SocketAddr, key: &'static str, retries: u32) -> Result<PortLock, LockError> {
    for retry in 0..retries {
        match try_reserve_port(address, key) {
            Err(LockError::Port { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {
                if retry == 0 {
                    tracing::info!("{address} is in use: waiting for it for up to {:?}", RETRY_PAUSE * retries);
                }
                #[expect(clippy::disallowed_methods, reason = "no shard runs yet")]
                std::thread::sleep(RETRY_PAUSE);
            }
            reserved => return reserved,
        }
    }
    try_reserve_port(address, key)
}

fn try_reserve_port(address: SocketAddr, key: &'static str) -> Result<PortLock, LockError> {
    let error = |source| LockError::Port { address, key, source };
    if address.port() != 0 {
        let exclusive = bound_socket(address, false).map_err(error)?;
        // Binding beside a bound socket succeeds when both say SO_REUSEADDR and neither listens: listening decides.
        exclusive.listen(1).map_err(error)?;
    }
    let reserved = bound_socket(address, true).map_err(error)?;
    let bound = reserved.local_addr().map_err(error)?.as_socket().expect("a TCP socket has an IP address");
    let name = UnixAddr::from_abstract_name(format!("corelane {bound}")).map_err(error)?;
    let name = UnixListener::bind_addr(&name).map_err(error)?;
    Ok(PortLock { address: bound, _name: name, _reserved: reserved })
}

fn bound_socket(address: SocketAddr, share: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(share)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// `kill -9` and a new start in the next line of a script: the lock was still held, and the start failed.
    #[test]
    fn a_lock_that_is_held_for_a_moment_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("broker.lock");
        let other = try_lock_file(&path).unwrap();
        assert!(matches!(try_lock_file(&path), Err(LockError::Held { .. })));
        let waiting = std::thread::spawn(move || lock_file(&path));
        drop(other);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn a_taken_port_is_refused_and_a_free_one_is_kept() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(matches!(reserve_port_within(other.local_addr().unwrap(), "k", 0), Err(LockError::Port { .. })));
        let ours = reserve_port(([127, 0, 0, 1], 0).into(), "k").unwrap();
        assert_ne!(ours.address.port(), 0);
        assert!(matches!(reserve_port_within(ours.address, "k", 0), Err(LockError::Port { .. })));
    }

    /// A broker killed under load could not be started again at once: its port was still taken.
    #[test]
    fn a_port_that_is_taken_for_a_moment_is_waited_for() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        let waiting = std::thread::spawn(move || reserve_port(address, "k"));
        drop(other);
        assert_eq!(waiting.join().unwrap().unwrap().address, address);
    }
}
