//! Addresses of the HTTP interface, built so that no name, id or text can change which route is asked.
//!
//! Start at [`Address::of`].

use std::fmt;
use std::fmt::Write as _;

/// A path with its query, percent-encoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    path: String,
    query: String,
}

impl Address {
    /// A fixed path, such as `/v1/processes`.
    #[must_use]
    pub fn of(path: &'static str) -> Address {
        Address { path: path.to_owned(), query: String::new() }
    }

    /// The address with one more segment.
    #[must_use]
    pub fn then(mut self, segment: impl fmt::Display) -> Address {
        self.path.push('/');
        encode(&segment.to_string(), &mut self.path);
        self
    }

    /// The address with one more key in its query.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl fmt::Display) -> Address {
        self.query.push(if self.query.is_empty() { '?' } else { '&' });
        encode(key, &mut self.query);
        self.query.push('=');
        encode(&value.to_string(), &mut self.query);
        self
    }

    /// The address with one more key in its query, where there is a value.
    #[must_use]
    pub fn with_some(self, key: &str, value: Option<impl fmt::Display>) -> Address {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path, self.query)
    }
}

/// RFC 3986: everything but the unreserved characters is encoded.
fn encode(text: &str, into: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            into.push(char::from(byte));
        } else {
            let _ = write!(into, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_a_person_types_changes_the_route() {
        let address = Address::of("/v1/proposals").then("p3/../x?y#z").then("approve").with("q", "a&b=ä c");
        assert_eq!(address.to_string(), "/v1/proposals/p3%2F..%2Fx%3Fy%23z/approve?q=a%26b%3D%C3%A4%20c");
    }
}
