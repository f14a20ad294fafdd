//! A request as a stranger may send it.

use aos_gateway::ApiError;
use aos_gateway::call::{Call, Incoming};
use aos_gateway::route::ROUTES;

/// Longest message of an error: the start of what was sent, and words around it.
const MESSAGE_BYTES_MAX: usize = 4096;

/// A request as [`call`] reads it.
pub fn http_body(data: &[u8]) {
    let Some(parsed) = call(data) else { return };
    if let Err(error) = &parsed {
        assert_eq!(error.status, 400, "{error}");
        assert!(!error.message.is_empty());
        assert!(error.message.len() <= MESSAGE_BYTES_MAX, "{} bytes of message", error.message.len());
    }
    assert_eq!(call(data).and_then(Result::ok), parsed.ok(), "the same again");
}

/// What the gateway makes of a request. The first byte chooses the route; then subject, query, `Last-Event-ID` (empty:
/// none), each ended by `\x1f`, and the body. `None` for no byte.
pub fn call(data: &[u8]) -> Option<Result<Call, ApiError>> {
    let (route, rest) = data.split_first()?;
    let operation = ROUTES[usize::from(*route) % ROUTES.len()].operation;
    let mut fields = rest.splitn(4, |byte| *byte == 0x1f);
    let mut field = || fields.next().unwrap_or_default();
    let (subject, query, id, body) = (field(), field(), field(), field());
    // These three are text before they get here: the router and the header refuse other bytes.
    let (subject, query, id) =
        (String::from_utf8_lossy(subject), String::from_utf8_lossy(query), String::from_utf8_lossy(id));
    let from = Incoming { subject: &subject, query: &query, last_event_id: (!id.is_empty()).then_some(&*id), body };
    Some(Call::parse(operation, from))
}
