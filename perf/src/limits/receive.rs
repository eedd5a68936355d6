//! Receiving over loopback and dropping: the floor of what a broker pays for its producers' bytes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{LimitError, Sides, io};
use crate::process::{pin, thread_cpu};

/// Bytes of one write of the source in a stream.
const WRITE_BYTES: usize = 1 << 20;
/// Unanswered requests of the source: what a producer keeps in flight.
const IN_FLIGHT: usize = 16;
/// Bytes of an answer.
const REPLY_BYTES: usize = 128;
/// Socket buffers, as the broker's clients get them by default, are left to the kernel; this is only the source's patience.
const PATIENCE: Duration = Duration::from_secs(10);

/// What to measure.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How long.
    pub time: Duration,
    /// Largest read.
    pub read_bytes: usize,
    /// Requests of this many bytes, each answered; 0 for a stream without answers.
    pub message_bytes: usize,
    /// The two CPUs.
    pub sides: Sides,
}

/// What was received.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Received {
    /// Bytes.
    pub bytes: u64,
    /// In this time, in seconds.
    pub seconds: f64,
    /// CPU time of the receiving thread, in seconds.
    pub cpu_seconds: f64,
}

impl Received {
    /// Rate in 10^9 bytes per second.
    pub fn gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds.max(1e-9) / 1e9
    }

    /// Milliseconds of CPU time per MiB.
    pub fn cpu_ms_per_mib(&self) -> f64 {
        self.cpu_seconds * 1e3 / (self.bytes as f64 / (1 << 20) as f64).max(1e-9)
    }
}

/// Measures.
///
/// # Errors
/// When sockets or CPUs refuse.
pub fn run(options: Options) -> Result<Received, LimitError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(io("listen"))?;
    let address = listener.local_addr().map_err(io("listen"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let source_stop = Arc::clone(&stop);
    let source = std::thread::spawn(move || -> Result<(), LimitError> {
        pin(options.sides.client_cpu).map_err(io("bind to a CPU"))?;
        let stream = TcpStream::connect(address).map_err(io("connect"))?;
        stream.set_nodelay(true).map_err(io("set TCP_NODELAY"))?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(io("set a timeout"))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(io("set a timeout"))?;
        send(stream, options.message_bytes, &source_stop)
    });
    let receiver = std::thread::spawn(move || -> Result<Received, LimitError> {
        pin(options.sides.server_cpu).map_err(io("bind to a CPU"))?;
        let (stream, _) = listener.accept().map_err(io("accept"))?;
        stream.set_nodelay(true).map_err(io("set TCP_NODELAY"))?;
        receive(stream, options)
    });
    let received = receiver.join().expect("the receiver does not panic");
    stop.store(true, Ordering::Relaxed);
    // The source ends by the closed connection or by the flag.
    let sent = source.join().expect("the source does not panic");
    received.and_then(|received| sent.map(|()| received))
}

fn send(mut stream: TcpStream, message_bytes: usize, stop: &AtomicBool) -> Result<(), LimitError> {
    let buffer = vec![0x5a_u8; if message_bytes == 0 { WRITE_BYTES } else { message_bytes }];
    let mut reply = [0_u8; REPLY_BYTES];
    let mut unanswered = 0;
    while !stop.load(Ordering::Relaxed) {
        // The receiver closes when its time is over: that is the end, not an error.
        if stream.write_all(&buffer).is_err() {
            break;
        }
        if message_bytes > 0 {
            unanswered += 1;
            if unanswered == IN_FLIGHT {
                if stream.read_exact(&mut reply).is_err() {
                    break;
                }
                unanswered -= 1;
            }
        }
    }
    Ok(())
}

fn receive(mut stream: TcpStream, options: Options) -> Result<Received, LimitError> {
    let mut buffer = vec![0_u8; options.read_bytes];
    let reply = [0_u8; REPLY_BYTES];
    let mut bytes = 0_u64;
    let mut answered = 0_u64;
    // The first bytes start the clock: connecting is not receiving.
    stream.read_exact(&mut buffer[..1]).map_err(io("receive"))?;
    let (started, cpu) = (Instant::now(), thread_cpu());
    while started.elapsed() < options.time {
        let read = stream.read(&mut buffer).map_err(io("receive"))?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        if options.message_bytes > 0 {
            while answered < bytes / options.message_bytes as u64 {
                stream.write_all(&reply).map_err(io("reply"))?;
                answered += 1;
            }
        }
    }
    Ok(Received { bytes, seconds: started.elapsed().as_secs_f64(), cpu_seconds: (thread_cpu() - cpu).as_secs_f64() })
}
