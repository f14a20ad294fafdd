//! Who is let in, on every route of the table.

use aos_gateway::route::{Access, ROUTES};

use crate::routes::{example, method};
use crate::server::{Server, TOKEN};

#[tokio::test]
async fn over_tcp_every_route_but_two_needs_the_token() {
    let server = Server::start().await;
    let short = format!("Bearer {}", &TOKEN[1..]);
    for route in ROUTES {
        let (path, body) = example(route);
        for headers in [&[][..], &[("authorization", short.as_str())], &[("authorization", TOKEN)]] {
            let got = server.tcp().send_with(method(route), &path, headers, body).await;
            match route.access {
                Access::Open | Access::Hook => assert!(got.status < 300, "{path}: {got:?}"),
                // The form of their errors has its own tests.
                Access::Program(_) => {
                    assert_eq!((got.status, got.header("www-authenticate")), (401, "Bearer"), "{path}: {got:?}");
                }
                Access::Token | Access::TokenOrKey => {
                    assert_eq!((got.status, got.header("www-authenticate")), (401, "Bearer"), "{path}: {got:?}");
                    assert!(got.error().starts_with("unauthorized: "), "{path}");
                }
            }
        }
    }
    assert_eq!(server.fake.calls.lock().unwrap().len(), 3, "only the webhook was called");
    assert!(server.fake.spawned.lock().unwrap().is_empty());
    assert!(server.fake.relayed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_stranger_learns_nothing_of_what_there_is() {
    let server = Server::start().await;
    for path in ["/", "/nowhere", "/v1/processes/404", "/v1/processes/x", "/v1/memory/%ff", "/v1/status?surprise=1"] {
        assert_eq!(server.tcp().send_with("GET", path, &[], "").await.status, 401, "{path}");
    }
    assert_eq!(server.tcp().send_with("PATCH", "/v1/processes", &[], "").await.status, 401);
}

#[tokio::test]
async fn a_rebound_name_is_refused_on_every_route_but_webhooks() {
    let server = Server::start().await;
    let token = format!("Bearer {TOKEN}");
    for route in ROUTES {
        let (path, body) = example(route);
        let headers = [("host", "evil.example:7717"), ("authorization", token.as_str())];
        let got = server.tcp().send_with(method(route), &path, &headers, body).await;
        if route.access == Access::Hook {
            assert_eq!(got.status, 201, "webhooks come through tunnels under any name");
        } else {
            assert_eq!(got.status, 403, "{path}");
            assert!(got.body.starts_with(b"{"), "{path}");
        }
    }
}

#[tokio::test]
async fn no_other_origin_is_allowed_to_read() {
    let server = Server::start().await;
    let token = format!("Bearer {TOKEN}");
    let headers = [("origin", "https://evil.example"), ("authorization", token.as_str())];
    let got = server.tcp().send_with("GET", "/v1/status", &headers, "").await;
    assert!(!got.headers.keys().any(|name| name.as_str().starts_with("access-control-")), "{got:?}");
    let asked = [("origin", "https://evil.example"), ("access-control-request-method", "GET")];
    let got = server.tcp().send_with("OPTIONS", "/v1/status", &asked, "").await;
    assert_eq!(got.status, 401);
    assert!(!got.headers.keys().any(|name| name.as_str().starts_with("access-control-")), "{got:?}");
}

/// The test's own user is the peer, so the socket is made another user's; root passes everywhere.
#[tokio::test]
async fn the_socket_is_for_its_own_user() {
    let own = rustix::process::geteuid().as_raw();
    let server = Server::with(64, |options| options.socket_uid = own + 1).await;
    let got = server.unix().send_with("GET", "/v1/status", &[], "").await;
    if own == 0 {
        assert_eq!(got.status, 200);
    } else {
        assert_eq!(got.status, 403);
        got.error();
    }
}
