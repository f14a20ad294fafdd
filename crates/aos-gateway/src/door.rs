//! Who comes in: the token, the `Host` header, requests that a web page makes behind its reader's back.
//!
//! Start at [`admit`]. What always holds: over TCP every route but the health check and the webhooks needs the token or,
//! where it is for programs, a key, reads included; the routes of programs need a key on the socket too, since it says who
//! pays; a request that came through no known door is treated as one from the network. Deliberately absent: whose a key is,
//! which only the system knows; CORS, so that no web page but our own can read an answer.

use std::net::{IpAddr, Ipv4Addr};

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, Method, header};

use crate::error::ApiError;
use crate::key::{Key, X_API_KEY, bearer};
use crate::options::Options;
use crate::route::Access;

/// Through which listener a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// A TCP listener on this address.
    Tcp(IpAddr),
    /// The Unix socket; the peer's user was checked when it connected.
    Socket,
}

impl Door {
    /// The one a request came through; through no known one: treated as the strictest, a loopback listener.
    pub(crate) fn of(request: &Parts) -> Door {
        request.extensions.get::<Door>().copied().unwrap_or(Door::Tcp(Ipv4Addr::LOCALHOST.into()))
    }
}

/// Who a request comes from, as far as its headers tell.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Comer {
    /// Whoever may use this route.
    Admitted,
    /// A program that shows this key; the system has yet to say whose it is.
    Program(Key),
}

/// Whether a request may go on to its route.
pub(crate) fn admit(options: &Options, door: Door, access: Access, request: &Parts) -> Result<Comer, ApiError> {
    match (door, access) {
        (Door::Tcp(address), Access::Open | Access::Token | Access::TokenOrKey | Access::Program(_)) => {
            check_host(options, address, request)?;
        }
        // Webhooks come through tunnels and proxies under names nobody can list; their signature is what counts, and for
        // those without one [`check_page`].
        (Door::Tcp(_), Access::Hook) | (Door::Socket, _) => {}
    }
    let headers = &request.headers;
    match (door, access) {
        (_, Access::Program(_)) if shows_token(options, headers) => Err(Key::not_the_token()),
        (_, Access::Program(_)) => Key::shown(headers).map(Comer::Program),
        (_, Access::TokenOrKey) if Key::is_shown(headers) => Key::shown(headers).map(Comer::Program),
        (Door::Socket, _) | (Door::Tcp(_), Access::Hook | Access::Open) => Ok(Comer::Admitted),
        (Door::Tcp(_), Access::Token | Access::TokenOrKey) => check_token(options, headers).map(|()| Comer::Admitted),
    }
}

fn check_token(options: &Options, headers: &HeaderMap) -> Result<(), ApiError> {
    const HINT: &str =
        "send `Authorization: Bearer TOKEN` with the text of run/token in the home, or use the socket run/aos.sock";
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let given = values.next().ok_or_else(|| ApiError::unauthorized("this route needs the token").hint(HINT))?;
    let right = bearer(given.as_bytes()).is_some_and(|token| options.token.is(token)) && values.next().is_none();
    if right { Ok(()) } else { Err(ApiError::unauthorized("the token is not the right one").hint(HINT)) }
}

/// Whether any of the places for a key holds the token.
fn shows_token(options: &Options, headers: &HeaderMap) -> bool {
    let bearers = headers.get_all(header::AUTHORIZATION).iter().filter_map(|value| bearer(value.as_bytes()));
    let bare = headers.get_all(X_API_KEY).iter().map(|value| value.as_bytes().trim_ascii());
    bearers.chain(bare).any(|text| options.token.is(text))
}

/// DNS rebinding: a web page's own name is made to point at 127.0.0.1, and then its scripts reach this listener as
/// their own origin. What gives them away is the name they come by, so a loopback listener answers to its own only.
fn check_host(options: &Options, address: IpAddr, request: &Parts) -> Result<(), ApiError> {
    if !address.is_loopback() {
        return Ok(());
    }
    let authority = authority(request)?;
    let host = authority.host();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let known = host.eq_ignore_ascii_case("localhost")
        || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip == address)
        || options.hosts.iter().any(|name| name.eq_ignore_ascii_case(host));
    if known && !authority.as_str().contains('@') {
        return Ok(());
    }
    Err(ApiError::forbidden(format!("this listener is not `{}`", crate::call::shown(host)))
        .hint("use localhost or 127.0.0.1 as the host; a proxy's name is given by `hosts` below [daemon] of aos.toml"))
}

/// The host that a request names: in its address where that is absolute (RFC 9112, 3.2.2), else in the one header.
fn authority(request: &Parts) -> Result<Authority, ApiError> {
    if let Some(authority) = request.uri.authority() {
        return Ok(authority.clone());
    }
    let mut values = request.headers.get_all(header::HOST).iter();
    match (values.next(), values.next()) {
        (Some(host), None) => Authority::try_from(host.as_bytes())
            .map_err(|_| ApiError::usage("the header Host is not the name of a host")),
        _ => Err(ApiError::usage("exactly one header Host was expected")),
    }
}

/// Refuses what a page that its reader happens to open may send to an unsigned webhook: a page of another site, and on
/// loopback one that came by a name of its own (see [`check_host`]). Programs say nothing of pages, so they may come by any
/// name, but for a request that a page could send without a word of it.
pub(crate) fn check_page(options: &Options, door: Door, request: &Parts) -> Result<(), ApiError> {
    if from_foreign_page(request) {
        return Err(ApiError::forbidden("a page of another site may not call an unsigned webhook")
            .hint("register the webhook with a secret, and sign"));
    }
    match door {
        Door::Tcp(address) if may_be_of_page(request) => check_host(options, address, request),
        Door::Tcp(_) | Door::Socket => Ok(()),
    }
}

/// Browsers send `Origin` with all but GET and HEAD within one origin (Fetch standard, "append a request Origin header"),
/// and `Sec-Fetch-Site` to trustworthy origins only, which another name over plain HTTP is not (Fetch Metadata, 2).
fn may_be_of_page(request: &Parts) -> bool {
    let says = |name: &HeaderName| name == header::ORIGIN || name.as_str().starts_with("sec-fetch-");
    matches!(request.method, Method::GET | Method::HEAD) || request.headers.keys().any(says)
}

/// Whether a browser sends this on behalf of another site's page.
fn from_foreign_page(request: &Parts) -> bool {
    let header = |name: &str| request.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    if header("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none")) {
        return true;
    }
    let Some(origin) = header("origin") else { return false };
    let place = origin.split_once("://").map_or(origin, |(_, place)| place);
    !authority(request).is_ok_and(|authority| authority.as_str().eq_ignore_ascii_case(place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Token;

    const TOKEN: &str = "0123456789abcdef";

    fn asked(address: &str, access: Access, uri: &str, headers: &[(&str, &str)]) -> Result<(), u16> {
        let mut request = axum::http::Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut options = Options::new(Token::new(TOKEN).unwrap());
        options.hosts = vec!["aos.example".to_owned()];
        let parts = request.body(()).unwrap().into_parts().0;
        admit(&options, Door::Tcp(address.parse().unwrap()), access, &parts).map(drop).map_err(|error| error.status)
    }

    #[test]
    fn loopback_answers_to_its_own_names_only() {
        let host = |host: &str| asked("127.0.0.1", Access::Open, "/", &[("host", host)]);
        for own in ["localhost", "LocalHost:7717", "127.0.0.1:7717", "[::1]:7717", "127.0.0.2", "aos.example:1"] {
            assert_eq!(host(own), Ok(()), "{own}");
        }
        for foreign in
            ["evil.example", "evil.example:7717", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1"]
        {
            assert_eq!(host(foreign), Err(403), "{foreign}");
        }
        assert_eq!(host("evil.example@localhost"), Err(403));
        assert_eq!(asked("127.0.0.1", Access::Open, "/", &[]), Err(400));
        assert_eq!(asked("127.0.0.1", Access::Open, "/", &[("host", "localhost"), ("host", "evil.example")]), Err(400));
        assert_eq!(asked("127.0.0.1", Access::Open, "http://evil.example/", &[("host", "localhost")]), Err(403));
        assert_eq!(asked("192.0.2.1", Access::Open, "/", &[("host", "any.example")]), Ok(()), "not loopback");
    }

    #[test]
    fn the_token_is_needed_and_must_be_right() {
        let with =
            |value: &str| asked("127.0.0.1", Access::Token, "/", &[("host", "localhost"), ("authorization", value)]);
        assert_eq!(with(&format!("Bearer {TOKEN}")), Ok(()));
        assert_eq!(with(&format!("bearer  {TOKEN}")), Ok(()), "the scheme has no case, RFC 9110");
        for wrong in ["", "Bearer", "Bearer ", TOKEN, "Basic 0123456789abcdef", "Bearer 0123456789abcde"] {
            assert_eq!(with(wrong), Err(401), "{wrong}");
        }
        assert_eq!(asked("127.0.0.1", Access::Token, "/", &[("host", "localhost")]), Err(401));
        let right = format!("Bearer {TOKEN}");
        let twice = [("host", "localhost"), ("authorization", right.as_str()), ("authorization", "Bearer x")];
        assert_eq!(asked("127.0.0.1", Access::Token, "/", &twice), Err(401));
    }

    /// A page of evil.example whose name was made to lead to 127.0.0.1 is its own origin here.
    #[test]
    fn a_page_under_a_name_of_its_own_is_refused_and_programs_are_not() {
        let asked = |address: &str, method: &str, host: &str, headers: &[(&str, &str)]| {
            let mut request = axum::http::Request::builder().method(method).uri("/hooks/a").header("host", host);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let mut options = Options::new(Token::new(TOKEN).unwrap());
            options.hosts = vec!["aos.example".to_owned()];
            let parts = request.body(()).unwrap().into_parts().0;
            check_page(&options, Door::Tcp(address.parse().unwrap()), &parts).map_err(|error| error.status)
        };
        let page = |host: &str, method: &str| {
            let origin = format!("http://{host}");
            asked("127.0.0.1", method, host, &[("origin", &origin), ("sec-fetch-site", "same-origin")])
        };
        assert_eq!(page("evil.example:7717", "POST"), Err(403));
        assert_eq!(page("localhost:7717", "POST"), Ok(()));
        assert_eq!(page("127.0.0.1:7717", "POST"), Ok(()));
        assert_eq!(page("aos.example", "POST"), Ok(()), "a name that the configuration gives");
        let bare = |method: &str, host: &str| asked("127.0.0.1", method, host, &[]);
        assert_eq!(asked("127.0.0.1", "POST", "evil.example", &[("sec-fetch-mode", "cors")]), Err(403));
        assert_eq!(bare("POST", "tunnel.example"), Ok(()), "a program, through a tunnel");
        assert_eq!(bare("PUT", "tunnel.example"), Ok(()));
        for silent in ["GET", "HEAD"] {
            assert_eq!(bare(silent, "evil.example:7717"), Err(403), "{silent}: no browser says that a page sends it");
            for own in ["localhost:7717", "127.0.0.1:7717", "[::1]:7717", "aos.example"] {
                assert_eq!(bare(silent, own), Ok(()), "{silent} {own}");
            }
        }
        assert_eq!(asked("192.0.2.1", "GET", "any.example", &[]), Ok(()), "not loopback");
    }

    #[test]
    fn a_foreign_page_is_recognised() {
        let asked = |headers: &[(&str, &str)]| {
            let mut request = axum::http::Request::builder().uri("/hooks/a").header("host", "localhost:7717");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            from_foreign_page(&request.body(()).unwrap().into_parts().0)
        };
        assert!(!asked(&[]));
        assert!(!asked(&[("origin", "http://localhost:7717"), ("sec-fetch-site", "same-origin")]));
        assert!(!asked(&[("sec-fetch-site", "none")]));
        assert!(asked(&[("sec-fetch-site", "cross-site")]));
        assert!(asked(&[("origin", "https://evil.example")]));
        assert!(asked(&[("origin", "null")]));
        assert!(asked(&[("origin", "http://localhost:8000")]), "another port is another site's page");
    }
}
