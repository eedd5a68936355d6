//! One source, the same buffers, many sockets: what ten tailing consumers could get at most.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::receive::Received;
use super::{LimitError, Sides, io};
use crate::process::{pin, thread_cpu};

/// Bytes of one buffer: a batch of the bars.
const BUFFER_BYTES: usize = 256 << 10;
/// Different buffers sent in turn: more than a cache holds of them would measure memory, one would measure nothing else.
const BUFFERS: usize = 16;

/// Measures `sockets` receivers on the client's CPU and one source on the other; returns what all received together.
///
/// # Errors
/// When sockets or CPUs refuse.
pub fn run(time: Duration, sockets: usize, sides: Sides) -> Result<Received, LimitError> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(io("listen"))?;
    let address = listener.local_addr().map_err(io("listen"))?;
    let stop = Arc::new(AtomicBool::new(false));
    let received = Arc::new(AtomicU64::new(0));
    let mut clients = Vec::with_capacity(sockets);
    for _ in 0..sockets {
        clients.push(TcpStream::connect(address).map_err(io("connect"))?);
    }
    let (sink_stop, sink_received) = (Arc::clone(&stop), Arc::clone(&received));
    let sink = std::thread::spawn(move || -> Result<(), LimitError> {
        pin(sides.client_cpu).map_err(io("bind to a CPU"))?;
        drop_all(clients, &sink_stop, &sink_received)
    });
    let source_stop = Arc::clone(&stop);
    let source = std::thread::spawn(move || -> Result<Duration, LimitError> {
        pin(sides.server_cpu).map_err(io("bind to a CPU"))?;
        let mut streams = Vec::with_capacity(sockets);
        for _ in 0..sockets {
            streams.push(listener.accept().map_err(io("accept"))?.0);
        }
        let cpu = thread_cpu();
        send_all(streams, &source_stop)?;
        Ok(thread_cpu() - cpu)
    });
    let started = Instant::now();
    std::thread::sleep(time);
    let seconds = started.elapsed().as_secs_f64();
    let bytes = received.load(Ordering::Relaxed);
    stop.store(true, Ordering::Relaxed);
    let cpu = source.join().expect("the source does not panic");
    sink.join().expect("the sink does not panic")?;
    Ok(Received { bytes, seconds, cpu_seconds: cpu?.as_secs_f64() })
}

fn send_all(mut streams: Vec<TcpStream>, stop: &AtomicBool) -> Result<(), LimitError> {
    let buffers: Vec<Vec<u8>> = (0..BUFFERS).map(|index| vec![index as u8; BUFFER_BYTES]).collect();
    for stream in &streams {
        stream.set_nonblocking(true).map_err(io("set non-blocking"))?;
    }
    let mut sent = vec![0_usize; streams.len()];
    while !stop.load(Ordering::Relaxed) {
        let mut any = false;
        for (stream, sent) in streams.iter_mut().zip(&mut sent) {
            let buffer = &buffers[*sent / BUFFER_BYTES % BUFFERS];
            match stream.write(&buffer[*sent % BUFFER_BYTES..]) {
                Ok(written) => {
                    *sent += written;
                    any = true;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(io("send")(error)),
            }
        }
        if !any {
            wait(&streams, PollFlags::OUT)?;
        }
    }
    Ok(())
}

fn drop_all(mut streams: Vec<TcpStream>, stop: &AtomicBool, received: &AtomicU64) -> Result<(), LimitError> {
    let mut buffer = vec![0_u8; 1 << 20];
    for stream in &streams {
        stream.set_nonblocking(true).map_err(io("set non-blocking"))?;
    }
    while !stop.load(Ordering::Relaxed) {
        let mut any = false;
        for stream in &mut streams {
            match stream.read(&mut buffer) {
                Ok(read) => {
                    received.fetch_add(read as u64, Ordering::Relaxed);
                    any |= read > 0;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(io("receive")(error)),
            }
        }
        if !any {
            wait(&streams, PollFlags::IN)?;
        }
    }
    Ok(())
}

/// Waits until one socket is ready, or a little while, so that the flag is seen.
fn wait(streams: &[TcpStream], flags: PollFlags) -> Result<(), LimitError> {
    let mut waiting: Vec<PollFd<'_>> = streams.iter().map(|stream| PollFd::new(stream, flags)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    match poll(&mut waiting, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(io("poll")(error.into())),
    }
}
