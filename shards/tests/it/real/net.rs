use std::cell::{Cell, RefCell};
use std::io::{IoSlice, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use shards::net::{Handover, ListenOptions, Listener, Stream};
use shards::{ShardId, executor};

use super::{HANG, on_shard, on_shards};

fn listen() -> Listener {
    Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), ListenOptions::default()).unwrap()
}

/// A client on a thread of its own.
fn client<T: Send + 'static>(
    address: SocketAddr,
    body: impl FnOnce(TcpStream) -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    std::thread::spawn(move || {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(HANG)).unwrap();
        body(stream)
    })
}

async fn read_to_end(stream: &Stream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut bytes = vec![0; 64 << 10];
    loop {
        match stream.read(&mut bytes).await.unwrap() {
            0 => return all,
            count => all.extend_from_slice(&bytes[..count]),
        }
    }
}

#[test]
fn an_echo_comes_back() {
    on_shard(|| async {
        let listener = listen();
        let echoed = client(listener.local_address(), |mut stream| {
            let sent: Vec<u8> = (0..3_000_000u32).map(|index| (index % 251) as u8).collect();
            let mut reader = stream.try_clone().unwrap();
            let copy = sent.clone();
            let writer = std::thread::spawn(move || {
                stream.write_all(&copy).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
            });
            let mut received = Vec::new();
            reader.read_to_end(&mut received).unwrap();
            writer.join().unwrap();
            received == sent
        });
        let (stream, _) = listener.accept().await.unwrap();
        let mut bytes = vec![0; 100_000];
        loop {
            let count = stream.read(&mut bytes).await.unwrap();
            if count == 0 {
                break;
            }
            stream.write_all(&bytes[..count]).await.unwrap();
        }
        drop(stream);
        assert!(executor::blocking(move || echoed.join().unwrap()).await.unwrap());
    });
}

/// glommio sends only the first slice of a vectored write.
#[test]
fn all_slices_arrive_in_order_also_when_the_peer_is_slow() {
    on_shard(|| async {
        let listener = listen();
        let received = client(listener.local_address(), |mut stream| {
            let mut received = Vec::new();
            let mut bytes = vec![0; 10_000];
            loop {
                let count = stream.read(&mut bytes).unwrap();
                if count == 0 {
                    return received;
                }
                received.extend_from_slice(&bytes[..count]);
            }
        });
        let (stream, _) = listener.accept().await.unwrap();
        // More slices than one call takes, some empty, and far more bytes than the socket holds.
        let parts: Vec<Vec<u8>> = (0..3000usize).map(|index| vec![index as u8; index % 7 * 1000]).collect();
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        stream.write_vectored_all(&mut slices).await.unwrap();
        stream.write_vectored_all(&mut []).await.unwrap();
        drop(stream);
        let received = executor::blocking(move || received.join().unwrap()).await.unwrap();
        assert!(received == parts.concat());
    });
}

#[test]
fn reading_and_writing_go_on_at_once() {
    on_shard(|| async {
        let listener = listen();
        let address = listener.local_address();
        let accepting = executor::spawn(async move { listener.accept().await.unwrap().0 });
        let near = Stream::connect(address).await.unwrap();
        let far = accepting.await;
        let bytes: Rc<Vec<u8>> = Rc::new((0..5_000_000u32).map(|index| (index / 3) as u8).collect());
        let ends = [near, far];
        let writers = ends.clone().map(|stream| {
            let bytes = Rc::clone(&bytes);
            executor::spawn(async move { stream.write_all(&bytes).await.unwrap() })
        });
        let readers = ends.clone().map(|stream| {
            let wanted = bytes.len();
            executor::spawn(async move {
                let mut received = vec![0; wanted];
                let mut filled = 0;
                while filled < wanted {
                    filled += stream.read(&mut received[filled..]).await.unwrap();
                }
                received
            })
        });
        for writer in writers {
            writer.await;
        }
        for reader in readers {
            assert!(reader.await == *bytes);
        }
    });
}

#[test]
fn a_connection_is_handed_over_with_its_bytes_unread() {
    on_shards::<Handover, _, _, _>(2, |context| async move {
        let mesh = context.mesh;
        if context.shard == ShardId(0) {
            let listener = listen();
            for round in 0..20u8 {
                let answer = client(listener.local_address(), move |mut stream| {
                    stream.write_all(&[round; 32]).unwrap();
                    let mut answer = [0; 33];
                    stream.read_exact(&mut answer[..32]).unwrap();
                    assert_eq!(stream.read(&mut answer[32..]).unwrap(), 0);
                    answer[0]
                });
                let (stream, _) = listener.accept().await.unwrap();
                let mut first = [0; 8];
                assert!(stream.peek(&mut first).await.unwrap() > 0);
                assert_eq!(first[0], round);
                mesh.send(ShardId(1), stream.into_handover().unwrap()).unwrap();
                assert_eq!(executor::blocking(move || answer.join().unwrap()).await.unwrap(), round + 1);
            }
        }
        mesh.close();
        while let Some((_, handover)) = mesh.recv().await {
            let stream = Stream::from_handover(handover).unwrap();
            let mut bytes = [0; 32];
            let mut filled = 0;
            while filled < bytes.len() {
                filled += stream.read(&mut bytes[filled..]).await.unwrap();
            }
            stream.write_all(&bytes.map(|byte| byte + 1)).await.unwrap();
        }
    });
}

/// Dropping a glommio stream with a pending read leaves the peer without an end for hundreds of milliseconds.
#[test]
fn the_peer_sees_the_end_although_a_read_is_pending_on_a_busy_shard() {
    on_shard(|| async {
        let busy = Rc::new(Cell::new(true));
        let running = Rc::clone(&busy);
        let burner = executor::spawn(async move {
            while running.get() {
                std::hint::black_box((0..20_000u64).fold(0, |sum: u64, number| sum.wrapping_add(number)));
                executor::yield_if_needed().await;
            }
        });
        let listener = listen();
        let end = client(listener.local_address(), |mut stream| stream.read(&mut [0; 10]).unwrap());
        let (stream, _) = listener.accept().await.unwrap();
        let reader = stream.clone();
        let reading = executor::spawn(async move { reader.read(&mut [0; 10]).await });
        executor::yield_now().await;
        stream.shutdown();
        assert_eq!(executor::blocking(move || end.join().unwrap()).await.unwrap(), 0);
        assert_eq!(reading.await, Ok(0));
        busy.set(false);
        burner.await;
    });
}

/// The peer has an answer and the end of the stream, and may still be in the middle of what it sends.
#[test]
fn the_peer_sees_the_end_of_one_direction_and_goes_on_in_the_other() {
    on_shard(|| async {
        let listener = listen();
        let sent = client(listener.local_address(), |mut stream| {
            let mut told = Vec::new();
            stream.read_to_end(&mut told).unwrap();
            assert_eq!(told, b"bye");
            stream.write_all(&[7; 1 << 20]).unwrap();
        });
        let (stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"bye").await.unwrap();
        stream.shutdown_write();
        let mut bytes = vec![0; 64 << 10];
        let mut received = 0;
        loop {
            match stream.read(&mut bytes).await.unwrap() {
                0 => break,
                count => received += count,
            }
        }
        executor::blocking(move || sent.join().unwrap()).await.unwrap();
        assert_eq!(received, 1 << 20);
    });
}

/// An accepted connection of glommio has no owner until it is bound.
#[test]
fn dropped_connections_leave_no_descriptor() {
    on_shard(|| async {
        let listener = listen();
        let address = listener.local_address();
        let local = address.port();
        let clients = std::thread::spawn(move || {
            for _ in 0..1000 {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(HANG)).unwrap();
                // The end, or a reset when it came even before the connection was noticed.
                let _ = stream.read(&mut [0; 1]);
            }
        });
        for index in 0..1000 {
            let (stream, _) = listener.accept().await.unwrap();
            if index % 3 == 0 {
                drop(stream.into_handover().unwrap());
            }
        }
        executor::blocking(move || clients.join().unwrap()).await.unwrap();
        // Queued closes get their turn.
        for _ in 0..1000 {
            if sockets_with_local_port(local) <= 1 {
                return;
            }
            shards::clock::sleep(shards::TICK).await;
        }
        panic!("{} sockets are still open", sockets_with_local_port(local));
    });
}

/// Sockets of this process at the port, by inode.
fn sockets_with_local_port(port: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let suffix = format!(":{port:04X}");
    let inodes: Vec<String> = table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields[1].ends_with(&suffix).then(|| format!("socket:[{}]", fields[9]))
        })
        .collect();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let targets = open.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    targets.filter(|target| inodes.iter().any(|inode| target.as_os_str() == inode.as_str())).count()
}

#[test]
fn a_taken_address_is_an_error_and_shards_share_one_when_asked() {
    on_shard(|| async {
        let first = listen();
        let refused = Listener::bind(first.local_address(), ListenOptions::default()).unwrap_err();
        assert!(refused.is_address_in_use());
        let shared = ListenOptions { reuse_port: true, ..ListenOptions::default() };
        let first = Listener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), shared).unwrap();
        Listener::bind(first.local_address(), shared).unwrap();
    });
}

#[test]
fn a_gone_peer_is_a_disconnect() {
    on_shard(|| async {
        let listener = listen();
        let gone = client(listener.local_address(), drop);
        let (stream, _) = listener.accept().await.unwrap();
        executor::blocking(move || gone.join().unwrap()).await.unwrap();
        assert!(read_to_end(&stream).await.is_empty());
        let error = loop {
            if let Err(error) = stream.write_all(&[0; 100_000]).await {
                break error;
            }
        };
        assert!(error.is_disconnect(), "{error}");
        let refused = Stream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, 1))).await.unwrap_err();
        assert_eq!(refused.errno, libc::ECONNREFUSED);
    });
}

/// Connections are served while the shard has other work.
#[test]
fn small_requests_are_answered_on_a_busy_shard() {
    on_shard(|| async {
        let busy = Rc::new(Cell::new(true));
        let running = Rc::clone(&busy);
        let burner = executor::spawn(async move {
            while running.get() {
                executor::yield_now().await;
            }
        });
        let listener = listen();
        let done = client(listener.local_address(), |mut stream| {
            stream.set_nodelay(true).unwrap();
            for round in 0..100u8 {
                stream.write_all(&[round]).unwrap();
                let mut answer = [0];
                stream.read_exact(&mut answer).unwrap();
                assert_eq!(answer, [round]);
            }
        });
        let (stream, _) = listener.accept().await.unwrap();
        let served = RefCell::new(0);
        let mut byte = [0];
        while stream.read(&mut byte).await.unwrap() > 0 {
            stream.write_all(&byte).await.unwrap();
            *served.borrow_mut() += 1;
        }
        assert_eq!(served.take(), 100);
        executor::blocking(move || done.join().unwrap()).await.unwrap();
        busy.set(false);
        burner.await;
        shards::clock::sleep(Duration::from_millis(1)).await;
    });
}
