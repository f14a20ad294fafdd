//! The script of the first run, where no model is configured: a small real job with real calls.

use super::script::{Answer, Call, Rule, Script, When};

/// The model's name in configuration and lists.
pub(super) const NAME: &str = "demo";

/// Lists the workspace, writes a file, reads it back, and says that no real model was at work. Matches every task.
#[must_use]
pub fn demo_script() -> Script {
    let step = |text: &str, call| Answer { text: text.to_owned(), calls: vec![call], ..Answer::default() };
    let note = "# Hello from AOS\n\nThis file was written by the scripted demo model.\n\
                Each step was a system call: checked by the policy and kept in the journal.\n";
    let done =
        "The demo is done: I listed the workspace, wrote hello.md and read it back ({{last_result.size}} bytes).";
    let failed =
        "The demo is done, and not as planned: hello.md could not be read back. The results of the calls say why.";
    let end = |what: &str| Answer {
        text: format!(
            "{what}\n\nI am the scripted demo model: I play a fixed script, and did not read your task. \
             The calls were real. For a model that thinks, start a local server (such as Ollama) or set OPENAI_API_KEY, \
             ANTHROPIC_API_KEY or GEMINI_API_KEY, then run `aos init` and `aos down`."
        ),
        ..Answer::default()
    };
    let answers = vec![
        step("First I look at what is here.", Call::new("FS_LIST", serde_json::json!({ "path": "." }))),
        step("Now I write a file.", Call::new("FS_WRITE", serde_json::json!({ "path": "hello.md", "content": note }))),
        step("And I read it back.", Call::new("FS_READ", serde_json::json!({ "path": "hello.md" }))),
        end(done),
    ];
    let unread = When { after: Some("FS_READ".into()), last: Some("\"ERROR\"".into()), ..When::default() };
    let unread = Rule { when: unread, answers: vec![end(failed)], ..Rule::default() };
    Script { models: vec![NAME.to_owned()], ..Script::new(vec![unread, Rule::always(answers)]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_demo_is_correct() {
        let script = demo_script();
        let calls: Vec<&Call> = script.rules[1].answers.iter().flat_map(|answer| &answer.calls).collect();
        assert_eq!(calls.len(), 3);
        for call in calls {
            aos_abi::Syscall::parse(&call.name, &call.args.to_string()).unwrap();
        }
        let text = toml::to_string(&script).unwrap();
        assert_eq!(toml::from_str::<Script>(&text).unwrap(), script, "{text}");
    }
}
