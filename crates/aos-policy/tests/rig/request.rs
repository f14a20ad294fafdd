//! What a person wrote about a request that is sent, and whether it gives all that steers the call: told by how each part of
//! it was said, and never by looking at the text.

use aos_abi::Syscall;
use aos_abi::syscall::NetSend;
use aos_policy::Named;
use proptest::prelude::*;
use serde_json::json;

/// How an address is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// To the byte.
    Whole,
    /// Scheme and host in capitals.
    Loud,
    /// Without `https://`.
    Bare,
    /// With something more in its path.
    Longer,
    /// With a query that the call has not.
    Queried,
    /// It stands in a file whose name was said.
    InFile,
    /// It stands in a file that nobody spoke of.
    InOtherFile,
    /// Not at all.
    Unsaid,
}

/// How a method is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// As the call has it.
    Capitals,
    /// As a word of the sentence.
    Small,
    /// The same between backticks.
    Marked,
    /// The same right before the address.
    Before,
    /// Another one.
    Other,
    /// Not at all.
    Unsaid,
}

/// How what is sent is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Between quotes.
    Quoted,
    /// As words of the sentence.
    Loose,
    /// Between quotes with more.
    Longer,
    /// Between quotes, in another paragraph.
    Apart,
    /// Not at all.
    Unsaid,
}

/// What was written.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    address: Address,
    method: Method,
    body: Body,
}

/// The file that may name an address.
const FILE: &str = "links.txt";

impl Request {
    /// Whether it gives all that steers this call.
    pub(crate) fn gives(&self, send: &NetSend) -> bool {
        let sent = send.body.as_deref().unwrap_or_default();
        let address = match self.address {
            Address::Whole | Address::Loud | Address::Bare | Address::InFile => true,
            Address::Longer | Address::Queried | Address::InOtherFile | Address::Unsaid => false,
        };
        let method = match self.method {
            Method::Capitals | Method::Marked => true,
            // Where nothing is sent it is a plain word, unless an address follows it that is seen to be one.
            Method::Small => !sent.is_empty(),
            Method::Before => !sent.is_empty() || !matches!(self.address, Address::Bare | Address::InFile),
            Method::Other | Method::Unsaid => false,
        };
        let body = sent.is_empty() || self.body == Body::Quoted;
        let headers = send.headers.iter().flatten().all(|(name, _)| name == "accept");
        address && method && body && headers
    }

    /// The text, about this call.
    pub(crate) fn text(&self, send: &NetSend) -> String {
        let small = send.method.to_lowercase();
        let (scheme, rest) = send.url.split_once("://").expect("a URL");
        let (host, path) = rest.split_once('/').expect("it has a path");
        let address = match self.address {
            Address::Whole => send.url.clone(),
            Address::Loud => format!("{}://{}/{path}", scheme.to_uppercase(), host.to_uppercase()),
            Address::Bare => rest.to_owned(),
            Address::Longer => format!("{}/more", send.url.trim_end_matches('/')),
            Address::Queried => format!("{}?more", send.url),
            Address::InFile => format!("the one in {FILE}"),
            // An address follows whatever stands before it, as the others have it.
            Address::InOtherFile | Address::Unsaid => "https://elsewhere.example/".to_owned(),
        };
        let (before, after) = match self.method {
            Method::Capitals => ("", send.method.as_str()),
            Method::Small => ("", small.as_str()),
            Method::Marked => ("", &*format!("`{small}`")),
            Method::Before => (small.as_str(), "it"),
            Method::Other => ("", "PATCH"),
            Method::Unsaid => ("", "use"),
        };
        let sent = send.body.as_deref().filter(|body| !body.is_empty()).unwrap_or("nothing much");
        let (body, apart) = match self.body {
            Body::Quoted => (format!("\"{sent}\""), String::new()),
            Body::Loose => (sent.to_owned(), String::new()),
            Body::Longer => (format!("\"{sent} now\""), String::new()),
            Body::Apart => ("words".to_owned(), format!("\n\nLater come \"{sent}\" too.")),
            Body::Unsaid => ("words".to_owned(), String::new()),
        };
        format!("Please {before} {address} and {after} with {body} today.{apart}")
    }

    /// What a clean file named.
    pub(crate) fn named(&self, send: &NetSend) -> Vec<Named> {
        if !matches!(self.address, Address::InFile | Address::InOtherFile) {
            return Vec::new();
        }
        let read = Syscall::parse("FS_READ", &json!({ "path": FILE }).to_string()).expect("the arguments fit");
        Named::of(&read, &json!({ "content": send.url })).into_iter().collect()
    }
}

pub(crate) fn requests() -> impl Strategy<Value = Request> {
    use Address as A;
    let address =
        vec![A::Whole, A::Whole, A::Loud, A::Bare, A::Longer, A::Queried, A::InFile, A::InOtherFile, A::Unsaid];
    let method = vec![
        Method::Capitals,
        Method::Small,
        Method::Marked,
        Method::Before,
        Method::Capitals,
        Method::Other,
        Method::Unsaid,
    ];
    let body = vec![Body::Quoted, Body::Quoted, Body::Quoted, Body::Loose, Body::Longer, Body::Apart, Body::Unsaid];
    let drawn = (prop::sample::select(address), prop::sample::select(method), prop::sample::select(body));
    drawn.prop_map(|(address, method, body)| Request { address, method, body })
}

/// What may be sent: to the places that rules are about, with and without a body, with headers that say nothing and others.
pub(crate) fn sends() -> impl Strategy<Value = NetSend> {
    let host = prop::sample::select(vec!["a.com", "b.com", "x.a.com", "y.x.a.com", "c.com"]);
    let path = prop::sample::select(vec!["", "a", "b", "a/b", "ab/c/a"]);
    let method = prop::sample::select(vec!["POST", "PUT"]);
    let body =
        prop::sample::select(vec![None, Some(""), Some("it is done"), Some("it is done"), Some("it's (all) done")]);
    let header = prop::sample::select(vec![None, None, Some(("accept", "text/html")), Some(("x-note", "it"))]);
    (host, path, method, body, header).prop_map(|(host, path, method, body, header)| NetSend {
        url: format!("https://{host}/{path}"),
        method: method.to_owned(),
        headers: header.map(|(name, value)| [(name.to_owned(), value.to_owned())].into_iter().collect()),
        body: body.map(str::to_owned),
    })
}
