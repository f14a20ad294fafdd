//! Sizes, times and numbers: clients that send too much, too slowly, too often, or nothing at all.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use aos_abi::Pid;

use crate::client::{PATIENCE, Stream};
use crate::server::{Server, TOKEN};

/// Whatever the server sends until it closes; that it closes is the point.
async fn read_to_end(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset closes as well as an end.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("it stays open");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[tokio::test]
async fn a_body_too_large_is_a_413_and_files_may_be_larger() {
    let server = Server::with(64, |options| {
        options.body_bytes_max = 100;
        options.files_bytes_max = 200;
    })
    .await;
    let door = server.tcp();
    let text = |bytes: usize| format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes - 11));
    assert_eq!(door.send("POST", "/v1/processes/7/stdin", text(100)).await.status, 200);
    let got = door.send("POST", "/v1/processes/7/stdin", text(101)).await;
    assert_eq!(got.status, 413);
    assert_eq!(got.error(), "too_large: the body is larger than 100 bytes, the most this route takes");
    let task = |bytes: usize| format!(r#"{{"task":"{}"}}"#, "x".repeat(bytes - 11));
    assert_eq!(door.send("POST", "/v1/processes", task(200)).await.status, 201);
    assert_eq!(door.send("POST", "/v1/processes", task(201)).await.status, 413);
    let pieces = (0..300).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(b"x")));
    let chunked = Body::from_stream(futures_util::stream::iter(pieces));
    assert_eq!(door.send("POST", "/v1/processes", chunked).await.status, 413);
}

#[tokio::test]
async fn headers_that_trickle_in_are_cut_off() {
    let server = Server::with(64, |options| options.header_within = Duration::from_millis(100)).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ").await.unwrap();
    let answer = read_to_end(slow).await;
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    let silent = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(read_to_end(silent).await, "", "a connection without a request ends too");
    assert_eq!(server.tcp().get("/healthz").await.status, 200);
}

#[tokio::test]
async fn a_body_that_trickles_in_is_a_408() {
    let server = Server::with(64, |options| options.body_within = Duration::from_millis(100)).await;
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /hooks/open HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhi";
    slow.write_all(head.as_bytes()).await.unwrap();
    let answer = read_to_end(slow).await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains(r#"{"error":{"code":"ETIMEDOUT""#), "{answer}");
}

#[tokio::test]
async fn beyond_the_bound_connections_are_told_so() {
    let server = Server::with(64, |options| options.connections_max = 1).await;
    let held = Stream::open(&server.tcp(), "/v1/events", None).await;
    let got = server.tcp().get("/healthz").await;
    assert_eq!((got.status, got.header("retry-after"), got.header("connection")), (503, "1", "close"));
    assert_eq!(got.error(), "unavailable: too many connections");
    assert_eq!(server.unix().get("/healthz").await.status, 200, "the socket has its own bound");
    drop(held);
    while server.tcp().get("/healthz").await.status != 200 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_loses_its_place() {
    let server = Server::with(64, |options| {
        options.connections_max = 1;
        options.stall_within = Duration::from_millis(100);
    })
    .await;
    let long = "x".repeat(64 << 10);
    for _ in 0..1000 {
        server.fake.append(Pid(7), &long);
    }
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    let head = format!("GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n");
    idle.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    while server.tcp().get("/healthz").await.status != 200 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn what_is_under_way_at_the_end_is_finished_and_nothing_new_begun() {
    let server = Server::with(64, |options| options.drain_within = PATIENCE).await;
    let door = server.tcp();
    let under_way = tokio::spawn(async move { door.send_with("POST", "/hooks/held", &[], "hi").await });
    while server.fake.waiting.load(std::sync::atomic::Ordering::SeqCst) < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.shutdown.cancel();
    // The port is closed once the listener has heard of it.
    while TcpStream::connect(server.address).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.fake.gate.add_permits(1);
    let got = under_way.await.unwrap();
    assert_eq!((got.status, &got.body[..]), (201, &b"heard hi"[..]));
    assert_eq!(server.task.await.unwrap().cut, 0);
}

#[tokio::test]
async fn an_idle_connection_does_not_hold_up_the_end() {
    let server = Server::with(64, |options| {
        options.drain_within = PATIENCE;
        options.header_within = PATIENCE;
    })
    .await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    server.shutdown.cancel();
    assert!(read_to_end(idle).await.ends_with(r#"{"status":"ok"}"#));
    assert_eq!(server.task.await.unwrap().cut, 0);
}

#[tokio::test]
async fn what_does_not_end_is_cut_off_at_the_deadline() {
    let server = Server::with(64, |options| options.drain_within = Duration::from_millis(50)).await;
    let mut held = TcpStream::connect(server.address).await.unwrap();
    held.write_all(b"POST /hooks/held HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    while server.fake.waiting.load(std::sync::atomic::Ordering::SeqCst) < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.shutdown.cancel();
    assert_eq!(server.task.await.unwrap().cut, 1);
    assert_eq!(read_to_end(held).await, "");
}

#[tokio::test]
async fn a_wait_does_not_hold_up_the_end() {
    let server = Server::with(64, |options| options.drain_within = PATIENCE).await;
    let door = server.tcp();
    let waiting = tokio::spawn(async move { door.get("/v1/processes/9/wait?timeout_s=3600").await });
    while server.fake.waiting.load(std::sync::atomic::Ordering::SeqCst) < 1 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.shutdown.cancel();
    let got = waiting.await.unwrap();
    assert_eq!((got.status, got.error().as_str()), (503, "unavailable: the daemon is ending"));
    assert_eq!(server.task.await.unwrap().cut, 0);
}

#[tokio::test]
async fn hostile_heads_end_their_connection_only() {
    let server = Server::start().await;
    let long = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: {}", "x".repeat(200 << 10));
    for head in ["\0\0\0\0\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", long.as_str()] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        // The server may close before it has read everything.
        let _ = stream.write_all(head.as_bytes()).await;
        let answer = read_to_end(stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(server.tcp().get("/healthz").await.status, 200);
}
