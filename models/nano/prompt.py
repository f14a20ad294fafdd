"""The prompt: what a nano model is shown of a process's history, in ids.

Start at render. What always holds: each string stands as its JSON escape, so it has the same ids where it is read and
where it is written into an answer; ids of control tokens come from here alone. This is the reference of the Rust
renderer; vectors/prompts.jsonl binds both.
"""

import json

import grammar

TEXT_IDS, RESULT_IDS, PROMPT_IDS, CONTEXT_IDS = 512, 384, 1088, 1536
SUMMARY = "[summary of what happened before this point]\n"
INPUT_END = "[end of standard input]"


def render(prompt, tokenizer):
    """Ids of a prompt {"tools": [...], "messages": [{"user": [text, ...]} | {"assistant": text}]}, ready to go on."""
    head, turns = items(prompt, tokenizer)
    reply = [tokenizer.id["<|reply|>"]]
    while turns and len(head) + sum(map(len, turns)) + len(reply) > PROMPT_IDS:
        turns.pop(0)
    return head + [nth for turn in turns for nth in turn] + reply


def items(prompt, tokenizer):
    """What stands before the first reply, and each reply with all that follows it until the next."""
    head = lacking(prompt["tools"], tokenizer)
    turns = []
    for nth, message in enumerate(prompt["messages"]):
        if "assistant" in message:
            said = tokenizer.encode(message["assistant"])
            turns.append([tokenizer.id["<|reply|>"], *said, tokenizer.id["<|end|>"]])
            continue
        place = turns[-1] if turns else head
        for part_nth, part in enumerate(message["user"]):
            place += shown(part, nth == 0 and part_nth == 0, tokenizer)
    return head, turns


def lacking(tools, tokenizer):
    """The known calls that are not offered."""
    missing = [name for name in grammar.CALLS if name not in tools]
    return [tokenizer.id[name] for name in ["<|lack|>", *missing]] if missing else []


def shown(part, first, tokenizer):
    """One part of a user message."""
    if part.startswith("[result "):
        header, _, body = part.partition("]\n")
        return result(header.split(" ")[-1], json.loads(body), tokenizer)
    part = part.strip()
    control, text = "<|user|>", part
    if not first:
        if part.startswith("<untrusted "):
            control, text = "<|told|>", part.partition("\n")[2].rpartition("\n</untrusted>")[0]
        elif part.startswith(SUMMARY):
            control, text = "<|told|>", part[len(SUMMARY):]
        elif part.startswith(("[input, ", "[timer ", "[message ")) and "]\n" in part:
            text = part.partition("]\n")[2]
        elif part.startswith("[") and part.endswith("]") and "\n" not in part:
            text = ""
        text = text.removesuffix(INPUT_END)
    text = text.strip()
    return [tokenizer.id[control], *cut(grammar.esc(text), TEXT_IDS, False, tokenizer)] if text else []


def cut(escaped, most, was_cut, tokenizer):
    """Ids of an escaped text, with the mark of the cut where it is, or already was, longer."""
    ids = tokenizer.encode(escaped)
    return ids[:most] + [tokenizer.id["<|cut|>"]] if was_cut or len(ids) > most else ids


def result(name, outcome, tokenizer):
    """A result as the kernel shows it."""
    if outcome["status"] == "ERROR":
        error = outcome["error"]
        said = grammar.esc(f"{error['code']} {error['message']}")
        return [tokenizer.id["<|error|>"], *cut(said, RESULT_IDS, False, tokenizer)]
    was_cut = outcome.get("truncated", False)
    value = outcome["shown"] if was_cut else outcome["result"]
    was_cut = was_cut or (isinstance(value, dict) and value.get("truncated", False))
    said = grammar.esc(text_of(name, value) or "(nothing)")
    return [tokenizer.id["<|result|>"], *cut(said, RESULT_IDS, was_cut, tokenizer)]


def text_of(name, value):
    """What a result says, as plain text; line feeds at its end say nothing."""
    return whole(name, value).rstrip("\r\n")


def whole(name, value):
    if not isinstance(value, dict):
        return value if isinstance(value, str) else compact(value)
    try:
        return KNOWN[name](value) if name in KNOWN else fields(value)
    except (KeyError, TypeError):
        return fields(value)


def fields(value):
    """Any other result: its own scalars, a line each."""
    return "\n".join(f"{field} {scalar(item)}" for field, item in value.items() if not isinstance(item, (dict, list)))


def scalar(item):
    return item if isinstance(item, str) else compact(item)


def compact(value):
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def command(value):
    lines = [value.get(stream, "").rstrip() for stream in ("stdout", "stderr")]
    code = value.get("exit_code", 0)
    return "\n".join([line for line in lines if line] + ([f"exit code {code}"] if code else []))


def fetched(value):
    return (f"status {value['status']}\n" if value["status"] >= 400 else "") + value["body"]


def waited(value):
    said = [scalar(value["result"])] if value["result"] is not None else []
    return "\n".join(said + ([f"exit code {value['exit_code']}"] if value["exit_code"] else []))


KNOWN = {
    "FS_READ": lambda value: value["content"],
    "EXEC_CMD": command,
    "NET_FETCH": fetched,
    "NET_SEND": fetched,
    "FS_LIST": lambda value: "\n".join(
        entry["path"] + ("/" if entry["kind"] == "folder" else "") for entry in value["entries"]),
    "FS_SEARCH": lambda value: "\n".join(f"{hit['path']}:{hit['line']}: {hit['text']}" for hit in value["matches"]),
    "MEM_READ": lambda value: "\n".join(f"{hit['key']}: {hit['value']}" for hit in value["hits"]),
    "RECV_MSG": lambda value: "\n".join(message["content"] for message in value["messages"]),
    "WAIT": waited,
}
