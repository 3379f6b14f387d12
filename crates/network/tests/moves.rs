//! Connections that keep an event loop busy spread over the loops, and lose or reorder nothing on the way.

use bytes::Bytes;
use network::{Connections, Handled, Limits, Listener, ListenerConfig, Loops, Outgoing, Peer, RequestId};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

const REQUESTS: u32 = 400;

/// Answers each frame with itself, slowly.
#[derive(Default)]
struct Echo {
    threads: Mutex<BTreeSet<String>>,
}

impl network::Service for Echo {
    type Session = u32;

    fn open_session(&self, _: Peer) -> u32 {
        0
    }

    fn handle(&self, session: &mut u32, request: RequestId, frame: Bytes) -> Handled {
        *session += 1;
        assert_eq!(u64::from(*session), request.sequence);
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.threads.lock().expect("not poisoned").insert(thread);
        (0..100_000u32).for_each(|i| {
            std::hint::black_box(i);
        });
        Handled::Reply(Outgoing::from(frame))
    }

    fn close_session(&self, _: u32) {}
}

fn limits() -> Limits {
    Limits {
        max_request_bytes: 1 << 20,
        max_connections: usize::MAX,
        max_connections_per_ip: usize::MAX,
        max_idle: None,
        send_buffer: None,
        receive_buffer: None,
        backlog: 50,
    }
}

/// Frames of uneven sizes, written in pieces that do not end with them, all before the first answer is read.
fn talk(address: std::net::SocketAddr) {
    let mut stream = TcpStream::connect(address).expect("connects");
    let body = |i: u32| -> Vec<u8> { i.to_be_bytes().repeat(1 + i as usize % 50) };
    let mut sent = Vec::new();
    for i in 0..REQUESTS {
        let body = body(i);
        sent.extend((body.len() as u32).to_be_bytes());
        sent.extend(body);
    }
    for piece in sent.chunks(777) {
        stream.write_all(piece).expect("writes");
    }
    let mut received = vec![0; sent.len()];
    stream.read_exact(&mut received).expect("reads");
    assert!(received == sent, "answers are whole and in order");
}

#[test]
fn busy_connections_spread_over_the_loops_without_losing_a_byte() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let (loops, threads) = Loops::start(2).expect("the loops start");
    let config = ListenerConfig { name: "PLAINTEXT".into(), host: "127.0.0.1".into(), port: 0 };
    let listener = Listener::bind(&config, &limits()).expect("binds");
    let address = listener.local_addr();
    let echo = Arc::new(Echo::default());
    let connections: Arc<Connections> = Arc::default();
    let tasks = {
        let _inside = runtime.enter();
        listener.start(echo.clone(), connections.clone(), limits(), loops).expect("accepts")
    };
    let clients: Vec<_> = (0..4).map(|_| std::thread::spawn(move || talk(address))).collect();
    for client in clients {
        client.join().expect("a client's answers");
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    connections.close_all();
    threads.stop();
    let seen = echo.threads.lock().expect("not poisoned").clone();
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["network-0", "network-1"]);
    assert_eq!(connections.count(), 0, "every connection is unregistered");
}
