use super::{finish_on, new_disk};
use crate::executor;
use crate::net::{ListenOptions, Listener, Stream};

#[test]
fn bytes_arrive_in_order_through_a_handover_and_end_with_the_stream() {
    for seed in 0..20 {
        finish_on(&new_disk(), seed, async {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), ListenOptions::default()).unwrap();
            let address = listener.local_address();
            let server = executor::spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                let stream = Stream::from_handover(stream.into_handover().unwrap()).unwrap();
                let mut all = Vec::new();
                let mut bytes = vec![0; 10_000];
                loop {
                    match stream.read(&mut bytes).await.unwrap() {
                        0 => return all,
                        count => all.extend_from_slice(&bytes[..count]),
                    }
                }
            });
            let stream = Stream::connect(address).await.unwrap();
            let sent: Vec<u8> = (0..1_000_000u32).map(|number| number as u8).collect();
            stream.write_all(&sent).await.unwrap();
            stream.shutdown();
            assert_eq!(server.await, sent);
        });
    }
}

#[test]
fn one_direction_ends_and_the_other_goes_on() {
    for seed in 0..20 {
        finish_on(&new_disk(), seed, async {
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap(), ListenOptions::default()).unwrap();
            let address = listener.local_address();
            let server = executor::spawn(async move {
                let (stream, _) = listener.accept().await.unwrap();
                stream.write_all(b"bye").await.unwrap();
                stream.shutdown_write();
                let mut bytes = [0; 10];
                let count = stream.read(&mut bytes).await.unwrap();
                bytes[..count].to_vec()
            });
            let stream = Stream::connect(address).await.unwrap();
            let (mut all, mut bytes) = (Vec::new(), [0; 10]);
            loop {
                match stream.read(&mut bytes).await.unwrap() {
                    0 => break,
                    count => all.extend_from_slice(&bytes[..count]),
                }
            }
            assert_eq!(all, b"bye");
            stream.write_all(b"more").await.unwrap();
            assert!(b"more".starts_with(&server.await));
        });
    }
}

#[test]
fn nobody_listens() {
    finish_on(&new_disk(), 1, async {
        let error = Stream::connect("127.0.0.1:7311".parse().unwrap()).await.unwrap_err();
        assert_eq!(error.errno, libc::ECONNREFUSED);
        let listen = || Listener::bind("127.0.0.1:7311".parse().unwrap(), ListenOptions::default());
        let first = listen().unwrap();
        assert!(listen().unwrap_err().is_address_in_use());
        drop(first);
        listen().unwrap();
    });
}
