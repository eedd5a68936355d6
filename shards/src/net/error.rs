/// A socket operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot {operation}: {}", std::io::Error::from_raw_os_error(*.errno))]
pub struct NetError {
    /// What was tried: "bind", "read", …
    pub operation: &'static str,
    /// The error number of the kernel.
    pub errno: i32,
}

impl NetError {
    /// An error of `operation`.
    pub fn new(operation: &'static str, errno: i32) -> NetError {
        NetError { operation, errno }
    }

    /// From an error of the standard library.
    pub(crate) fn from_io(operation: &'static str, error: &std::io::Error) -> NetError {
        let errno = error.raw_os_error().unwrap_or(match error.kind() {
            std::io::ErrorKind::TimedOut => libc::ETIMEDOUT,
            std::io::ErrorKind::BrokenPipe => libc::EPIPE,
            std::io::ErrorKind::ConnectionReset => libc::ECONNRESET,
            _ => libc::EIO,
        });
        NetError { operation, errno }
    }

    /// The peer is gone: an ordinary end of a connection.
    pub fn is_disconnect(&self) -> bool {
        matches!(self.errno, libc::ECONNRESET | libc::EPIPE | libc::ENOTCONN | libc::ECONNABORTED | libc::ETIMEDOUT)
    }

    /// The address is taken.
    pub fn is_address_in_use(&self) -> bool {
        self.errno == libc::EADDRINUSE
    }

    /// Out of descriptors or memory: wait before the next accept.
    pub fn is_out_of_resources(&self) -> bool {
        matches!(self.errno, libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    }
}

const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<NetError>();
};
