//! The one error of the HTTP interface: a status, a code, what went wrong and the way out.
//!
//! What always holds: every refusal leaves as `{"error":{code,message,hint}}`. Deliberately absent: sources and
//! backtraces, which are the daemon's business and go to its log.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use aos_abi::api::{ErrorBody, ErrorView};
use aos_abi::{CallError, Code};

/// Why a request was not answered as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ApiError {
    /// The HTTP status, 400 to 599.
    pub status: u16,
    /// A code of [`Code`], or `usage`, `unauthorized`, `forbidden`, `not_found`, `too_large`, `unavailable`, `internal`.
    pub code: String,
    /// What went wrong, lower case, without a full stop.
    pub message: String,
    /// The way out.
    pub hint: Option<String>,
    /// When trying again may help, in milliseconds; sent as `Retry-After` in whole seconds, rounded up.
    pub retry_after_ms: Option<u64>,
}

impl ApiError {
    /// An error without a hint.
    #[must_use]
    pub fn new(status: u16, code: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError { status, code: code.into(), message: message.into(), hint: None, retry_after_ms: None }
    }

    /// The same error with a way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> ApiError {
        self.hint = Some(hint.into());
        self
    }

    /// The same error with the time after which trying again may help.
    #[must_use]
    pub fn retry_after_ms(mut self, millis: u64) -> ApiError {
        self.retry_after_ms = Some(millis);
        self
    }

    /// 400: the request itself is wrong: its form, its query or its path.
    #[must_use]
    pub fn usage(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "usage", message)
    }

    /// 401: no token, or not the right one.
    #[must_use]
    pub fn unauthorized(message: impl Into<String>) -> ApiError {
        ApiError::new(401, "unauthorized", message)
    }

    /// 403: whoever asks may not, whatever they send.
    #[must_use]
    pub fn forbidden(message: impl Into<String>) -> ApiError {
        ApiError::new(403, "forbidden", message)
    }

    /// 404: there is no such route or thing.
    #[must_use]
    pub fn not_found(message: impl Into<String>) -> ApiError {
        ApiError::new(404, "not_found", message)
    }

    /// 413: a body is larger than `limit` bytes.
    #[must_use]
    pub fn too_large(limit: usize) -> ApiError {
        ApiError::new(413, "too_large", format!("the body is larger than {limit} bytes, the most this route takes"))
    }

    /// 503: not now.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> ApiError {
        ApiError::new(503, "unavailable", message).retry_after_ms(1000)
    }

    /// 500: a fault of the daemon.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(500, "internal", message)
    }

    /// As it is written on the wire.
    #[must_use]
    pub fn body(&self) -> ErrorBody {
        ErrorBody {
            error: ErrorView { code: self.code.clone(), message: self.message.clone(), hint: self.hint.clone() },
        }
    }
}

/// The status that goes with a code. A spent budget is 402 and not 429, since clients repeat a 429 by themselves.
fn status_of(code: Code) -> u16 {
    match code {
        Code::Inval | Code::NotDir | Code::IsDir => 400,
        Code::DQuot => 402,
        Code::Perm => 403,
        Code::NoSys | Code::NoEnt | Code::Srch => 404,
        Code::Exist | Code::Child | Code::Rejected | Code::DeadLk => 409,
        Code::Again => 429,
        Code::Io => 500,
        Code::Intr => 503,
        Code::TimedOut => 504,
        Code::NoSpc => 507,
    }
}

impl From<CallError> for ApiError {
    fn from(error: CallError) -> ApiError {
        let retry_after_ms = match error.code {
            Code::Again => Some(error.retry_after_ms.unwrap_or(1000)),
            _ => error.retry_after_ms,
        };
        ApiError {
            status: status_of(error.code),
            code: error.code.as_str().to_owned(),
            message: error.message,
            hint: error.hint,
            retry_after_ms,
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let json = serde_json::to_vec(&self.body()).expect("three strings are always JSON");
        let mut response = Response::new(Body::from(json));
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(millis) = self.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000).max(1)));
        }
        if self.status == 401 {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_status() {
        let table: Vec<String> = Code::ALL
            .iter()
            .map(|code| format!("{code}={}", ApiError::from(CallError::new(*code, "x")).status))
            .collect();
        assert_eq!(
            table.join(" "),
            "EPERM=403 EINVAL=400 ENOSYS=404 ENOENT=404 EEXIST=409 ENOTDIR=400 EISDIR=400 ENOSPC=507 ESRCH=404 \
             ECHILD=409 ETIMEDOUT=504 EDQUOT=402 EAGAIN=429 EINTR=503 EREJECTED=409 EIO=500 EDEADLK=409"
        );
    }

    #[test]
    fn a_full_queue_says_when_to_come_back() {
        let response = ApiError::from(CallError { retry_after_ms: Some(1001), ..CallError::new(Code::Again, "full") });
        assert_eq!(response.into_response().headers()[header::RETRY_AFTER], "2");
        let response = ApiError::from(CallError::new(Code::Again, "full")).into_response();
        assert_eq!(response.headers()[header::RETRY_AFTER], "1");
    }
}
