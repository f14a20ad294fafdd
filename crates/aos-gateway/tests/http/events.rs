//! Event streams: without a gap and without a duplicate, whatever happens meanwhile.

use std::sync::atomic::Ordering;
use std::time::Duration;

use aos_abi::Pid;
use proptest::prelude::*;

use crate::client::Stream;
use crate::fake::Fake;
use crate::server::Server;

/// Entries of two processes in turn.
fn append_in_turn(fake: &Fake, count: u64) {
    for nth in 1..=count {
        fake.append(Pid(7 + nth % 2), "hi");
    }
}

/// Reads to the end of the journal over several connections, each of which takes some events and breaks off; at the
/// end each burst is appended in turn, and one last entry to prove that nothing else came before it.
async fn read_all(server: &Server, takes: &[u8], bursts: &[u8]) -> Vec<u64> {
    let mut ids = Vec::new();
    let mut bursts = bursts.iter().copied().chain([1, 1]);
    for take in takes.iter().cycle() {
        let mut stream = Stream::open(&server.tcp(), "/v1/events?after=0", ids.last().copied()).await;
        for _ in 0..*take {
            if ids.len() as u64 == server.fake.entries_count() {
                let Some(burst) = bursts.next() else { return ids };
                server.fake.append_many(burst);
            }
            ids.push(stream.next_id().await);
        }
    }
    ids
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    /// Entries are committed before and after each page is read and while the stream is live, subscriptions of 1 to 8
    /// places fall behind, pages of 1 to 9 entries end everywhere, and clients come and go.
    #[test]
    fn ids_rise_by_one_under_concurrent_appends(
        live in 1usize..9, page in 1usize..10,
        meanwhile in proptest::collection::vec((0u8..7, 0u8..7), 0..20),
        takes in proptest::collection::vec(1u8..60, 1..6),
        bursts in proptest::collection::vec(1u8..20, 0..10),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (ids, count) = runtime.block_on(async {
            let server = Server::with(live, |options| options.page_entries = page).await;
            server.fake.meanwhile.lock().unwrap().extend(meanwhile);
            (read_all(&server, &takes, &bursts).await, server.fake.entries_count())
        });
        prop_assert_eq!(ids, (1..=count).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn an_event_is_the_entry() {
    let server = Server::start().await;
    server.fake.append(Pid(7), "two\nlines");
    let mut stream = Stream::open(&server.unix(), "/v1/events?follow=false", None).await;
    let event = stream.next().await.unwrap();
    assert_eq!((event.id, event.event.as_str()), (Some(1), "input"));
    assert_eq!(
        event.data,
        r#"{"lsn":1,"at":"2026-11-22T00:00:00.000Z","pid":7,"type":"input","text":"two\nlines","from_pid":1}"#
    );
    assert_eq!(stream.next().await, None, "without follow it ends at the live edge");
}

#[tokio::test]
async fn a_process_has_its_own_events_only() {
    let server = Server::with(4, |options| options.page_entries = 2).await;
    append_in_turn(&server.fake, 9);
    let mut stream = Stream::open(&server.tcp(), "/v1/processes/7/events?after=2", None).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(stream.next_id().await);
    }
    append_in_turn(&server.fake, 6);
    for _ in 0..3 {
        ids.push(stream.next_id().await);
    }
    assert_eq!(ids, [4, 6, 8, 11, 13, 15]);
    assert_eq!(server.tcp().get("/v1/processes/404/events").await.status, 404);
}

/// Nothing came until the journal had caught up, and what came meanwhile was missed.
#[tokio::test]
async fn a_place_beyond_the_journals_end_is_refused() {
    let server = Server::with(4, |options| options.page_entries = 2).await;
    append_in_turn(&server.fake, 9);
    for path in ["/v1/events?after=10", "/v1/processes/7/events?after=10&follow=false"] {
        let answer = server.tcp().get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        let told = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(
            told.contains("there is no entry 10 yet: the journal ends at 9") && told.contains("begin anew"),
            "{told}"
        );
    }
    let mut stream = Stream::open(&server.tcp(), "/v1/events?after=0", Some(9)).await;
    append_in_turn(&server.fake, 1);
    assert_eq!(stream.next_id().await, 10, "its very end is a place");
}

#[tokio::test]
async fn progress_comes_without_an_id_to_whoever_asks() {
    let server = Server::start().await;
    let mut with = Stream::open(&server.tcp(), "/v1/processes/7/events?progress=true", None).await;
    let mut without = Stream::open(&server.tcp(), "/v1/events", None).await;
    server.fake.append(Pid(7), "a");
    assert_eq!((with.next_id().await, without.next_id().await), (1, 1));
    // Both are at the live edge only once a live entry came through.
    server.fake.append(Pid(7), "b");
    assert_eq!((with.next_id().await, without.next_id().await), (2, 2));
    server.fake.progress(Pid(8), "not mine");
    server.fake.progress(Pid(7), "hel");
    server.fake.append(Pid(7), "c");
    let piece = with.next().await.unwrap();
    assert_eq!((piece.id, piece.event.as_str()), (None, "progress"));
    assert_eq!(piece.data, r#"{"pid":7,"effect":"1.0","text":"hel"}"#);
    assert_eq!((with.next_id().await, without.next_id().await), (3, 3));
}

/// A client that does not read makes the server read no further than what the sockets between them hold.
#[tokio::test]
async fn a_slow_client_costs_a_page_and_misses_nothing() {
    const COUNT: u64 = 3000;
    let server = Server::with(4, |options| options.page_entries = 8).await;
    let mut stream = Stream::open(&server.tcp(), "/v1/events", None).await;
    let long = "x".repeat(16 << 10);
    for _ in 0..COUNT {
        server.fake.append(Pid(7), &long);
        tokio::task::yield_now().await;
    }
    let mut most = 0;
    for id in 1..=COUNT {
        assert_eq!(stream.next_id().await, id);
        most = most.max((server.fake.read.load(Ordering::SeqCst) as u64).saturating_sub(id));
    }
    assert!(most < COUNT / 2, "{most} entries were read ahead");
}

#[tokio::test]
async fn a_silent_stream_is_kept_open_and_ends_with_the_daemon() {
    let server = Server::with(4, |options| options.keep_alive_every = Duration::from_millis(20)).await;
    let mut stream = Stream::open(&server.tcp(), "/v1/events", None).await;
    assert_eq!(stream.next().await.unwrap().comment, "keep-alive");
    server.fake.append(Pid(7), "a");
    while stream.next().await.unwrap().id != Some(1) {}
    assert_eq!(stream.next().await.unwrap().comment, "keep-alive");
    server.shutdown.cancel();
    while stream.next().await.is_some() {}
    let drained = server.task.await.unwrap();
    assert_eq!(drained.cut, 0, "the stream ended by itself");
}

#[tokio::test]
async fn a_fault_in_the_middle_is_the_last_event() {
    let server = Server::start().await;
    server.fake.broken.store(true, Ordering::SeqCst);
    let mut stream = Stream::open(&server.tcp(), "/v1/events", None).await;
    let event = stream.next().await.unwrap();
    assert_eq!((event.id, event.event.as_str()), (None, "error"));
    assert!(event.data.contains("the disk is gone"), "{event:?}");
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_client_that_leaves_leaves_nothing_behind() {
    let server = Server::with(4, |options| options.keep_alive_every = Duration::from_millis(5)).await;
    let stream = Stream::open(&server.tcp(), "/v1/events", None).await;
    assert_eq!(server.fake.subscribers(), 1);
    drop(stream);
    while server.fake.subscribers() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_place_that_is_none_is_a_400() {
    let server = Server::start().await;
    let got = server.unix().send_with("GET", "/v1/events", &[("last-event-id", "x")], "").await;
    assert_eq!(got.status, 400);
    assert_eq!(got.error(), "usage: Last-Event-ID `x` is no journal position");
}
