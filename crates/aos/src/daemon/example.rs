//! Calls that somebody asks about, made whole.
//!
//! Start at [`completed`]. Only questions come here: a call that is to be done must be complete by itself.

use aos_abi::Name;
use aos_abi::api::CallView;

/// Fills the arguments that a call needs and that were left out from its example; which they were. People ask about
/// `FS_WRITE {"path":"a"}`, whatever would be written.
pub(crate) fn completed(mut call: CallView) -> (CallView, Vec<String>) {
    let Ok(name) = call.name.parse::<Name>() else { return (call, Vec::new()) };
    let schema = aos_abi::syscall::schema(name);
    let example: serde_json::Value =
        serde_json::from_str(name.spec().example).expect("every example is checked to be a call");
    let mut taken = Vec::new();
    for field in schema["required"].as_array().into_iter().flatten().filter_map(|field| field.as_str()) {
        if let (Some(args), Some(value)) = (call.args.as_object_mut(), example.get(field))
            && !args.contains_key(field)
        {
            args.insert(field.to_owned(), value.clone());
            taken.push(field.to_owned());
        }
    }
    (call, taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_call_needs_and_nobody_said_comes_from_its_example() {
        let asked = |name: &str, args| completed(CallView { name: name.into(), args });
        let (call, taken) = asked("FS_WRITE", serde_json::json!({ "path": "a" }));
        assert_eq!(taken, ["content"]);
        assert_eq!(call.args["path"], "a");
        assert!(aos_abi::Syscall::parse(&call.name, &call.args.to_string()).is_ok());
        assert_eq!(asked("NO_CALL", serde_json::json!({})).1, Vec::<String>::new());
        assert_eq!(asked("FS_READ", serde_json::json!([])).1, Vec::<String>::new());
    }
}
