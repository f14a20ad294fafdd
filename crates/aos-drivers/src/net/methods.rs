//! What the rules are asked of a command's request: for each method that they can name itself, and for any other all of them.
//!
//! Start at [`Demand::of`]. What always holds: a method that no rule can name goes where every method that rules can name would
//! go, so it opens nothing that such rules keep closed; a tunnel, inside which no method is seen, takes as much. A second
//! address that such a request names is asked about as the first.

use aos_abi::CallError;
use aos_policy::Allowed;
use hyper::Method;
use hyper::header::HeaderMap;
use reqwest::Url;

use super::proxy::Gate;

/// The methods that rules can name.
const NAMED: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// What a rule has to allow for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Demand {
    methods: Vec<&'static str>,
    urls: Vec<String>,
}

impl Demand {
    /// What this request for `url` takes.
    ///
    /// # Errors
    /// Why none can allow it.
    pub(super) fn of(method: &Method, url: &str, headers: &HeaderMap) -> Result<Demand, &'static str> {
        // Looking is decided like getting.
        let judged = if *method == Method::HEAD { "GET" } else { method.as_str() };
        let mut urls = vec![url.to_owned()];
        if let Some(named) = NAMED.into_iter().find(|named| *named == judged) {
            return Ok(Demand { methods: vec![named], urls });
        }
        if *method == Method::TRACE {
            return Err("TRACE sends back what was put into the request, and no rule can name it");
        }
        // Where WebDAV copies and moves to (RFC 4918, section 10.3).
        urls.extend(destination(url, headers)?);
        Ok(Demand { methods: NAMED.to_vec(), urls })
    }

    /// Whether a rule can name the method itself.
    pub(super) fn is_named(&self) -> bool {
        self.methods.len() == 1
    }

    /// What allows it: the last of the rules, under the obligations of all.
    ///
    /// # Errors
    /// The first that is not, with the hints of all that are not: what would let it pass is all of them together.
    pub(super) fn put_to(&self, gate: &impl Gate) -> Result<Allowed, CallError> {
        let mut allowed: Option<Allowed> = None;
        let mut refused: Option<CallError> = None;
        for (url, method) in self.urls.iter().flat_map(|url| self.methods.iter().map(move |method| (url, method))) {
            match (gate.request(method, url), &mut refused) {
                (Ok(one), _) => {
                    allowed = Some(match allowed {
                        None => one,
                        Some(before) => before.and(one),
                    });
                }
                (Err(error), None) => refused = Some(error),
                (Err(error), Some(first)) => first.hint = both(first.hint.take(), error.hint),
            }
        }
        match refused {
            Some(error) => Err(error),
            None => Ok(allowed.expect("a demand has a method and an address")),
        }
    }
}

/// Two hints as one, each said once.
fn both(first: Option<String>, next: Option<String>) -> Option<String> {
    match (first, next) {
        (Some(first), Some(next)) if !first.split(", ").any(|said| said == next) => Some(format!("{first}, {next}")),
        (first, next) => first.or(next),
    }
}

/// The second address of a request, whole.
fn destination(url: &str, headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    const UNPLAIN: &str = "its `destination` is no plain address";
    let mut values = headers.get_all("destination").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let (None, Ok(said)) = (values.next(), value.to_str()) else { return Err(UNPLAIN) };
    let whole = Url::parse(url).and_then(|base| base.join(said)).map_err(|_| UNPLAIN)?;
    // The other side reads it as it is written.
    let origin = whole.origin().ascii_serialization();
    let plain = said == whole.as_str() || whole.as_str().strip_prefix(&origin) == Some(said);
    if plain { Ok(Some(whole.into())) } else { Err(UNPLAIN) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(method: &str, destinations: &[&str]) -> Result<(usize, Vec<String>), &'static str> {
        let mut headers = HeaderMap::new();
        for value in destinations {
            headers.append("destination", value.parse().unwrap());
        }
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        Demand::of(&method, "http://example.com/dav/a", &headers).map(|demand| (demand.methods.len(), demand.urls))
    }

    #[test]
    fn what_no_rule_can_name_takes_all_that_rules_can_name() {
        let here = || vec!["http://example.com/dav/a".to_owned()];
        for named in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
            assert_eq!(demand(named, &[]), Ok((1, here())), "{named}");
        }
        for other in ["OPTIONS", "PROPFIND", "REPORT", "get", "Post", "ANYTHING"] {
            assert_eq!(demand(other, &[]), Ok((5, here())), "{other}");
        }
        assert!(demand("TRACE", &[]).is_err());
    }

    #[test]
    fn where_a_copy_goes_is_asked_about_too() {
        let both = |to: &str| Ok((5, vec!["http://example.com/dav/a".to_owned(), to.to_owned()]));
        assert_eq!(demand("COPY", &["http://example.com/dav/b"]), both("http://example.com/dav/b"));
        assert_eq!(demand("MOVE", &["/other/b?x"]), both("http://example.com/other/b?x"));
        assert_eq!(demand("MOVE", &["https://elsewhere.com/b"]), both("https://elsewhere.com/b"));
        for unplain in
            ["/dav/../b", "b", "//elsewhere.com/b", "http://EXAMPLE.com/b", "http://example.com:80/b", "/a b", ""]
        {
            assert!(demand("COPY", &[unplain]).is_err(), "{unplain:?}");
        }
        assert!(demand("COPY", &["/b", "/c"]).is_err());
    }
}
