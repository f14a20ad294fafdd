"""The prompt: what a nano model is shown of a process's history, in ids.

Start at render. What always holds: ids of control tokens come from here alone; each text that somebody wrote is a source, of
which answers may take spans. This is the reference of the Rust renderer; vectors/prompts.jsonl binds both.
"""

import json
from typing import NamedTuple

import grammar
from answer import Codec, Source
from tokenizer import Table

TEXT_IDS, RESULT_IDS, PROMPT_IDS, CONTEXT_IDS = 384, 320, 896, 1280
SUMMARY = "[summary of what happened before this point]\n"
INPUT_END = "[end of standard input]"


class Said(NamedTuple):
    """A text of somebody else's, with the control token before it."""

    control: str
    text: str
    was_cut: bool = False
    # It names things: a list, a search, a new process.
    names: bool = False


class Prompt:
    """The history of a process written as ids, message by message."""

    def __init__(self, tokenizer, tools, table=None, strict=False):
        self.tokenizer, self.table, self.strict = tokenizer, table or Table(), strict
        self.ids, self.sources, self.mask, self.unsure = [], [], [], set()
        missing = [name for name in grammar.CALLS if name not in tools]
        self.add([tokenizer.id[name] for name in ["<|lack|>", *missing]] if missing else [])

    def add(self, ids, asked=0):
        self.ids += ids
        self.mask += [asked] * len(ids)

    def show(self, said):
        """A text that may be copied from; what is too long is cut."""
        result = said.control in ("<|result|>", "<|error|>")
        if said.control == "<|user|>":
            self.tokenizer.correct(said.text, self.table)
        most = RESULT_IDS if result else TEXT_IDS
        tokens = self.tokenizer.encode(said.text, self.table, most, said.control == "<|user|>")
        too_long = len(tokens) == most and len(self.tokenizer.pieces(said.text, self.table)) > most
        text = said.text[:tokens[-1].end] if too_long else said.text
        self.sources.append(Source(text, tokens, result, said.control == "<|user|>" or ("names" if said.names else False)))
        cut = [self.tokenizer.id["<|cut|>"]] if said.was_cut or too_long else []
        self.add([self.tokenizer.id[said.control], *(token.id for token in tokens), *cut])

    @property
    def codec(self):
        """From replies to tokens and back, after what has been shown so far."""
        return Codec(self.tokenizer, self.table, self.sources, self.strict, self.unsure)

    def reply(self, text):
        """A reply of before; one that is no answer of this model stands as its text."""
        try:
            ids = self.codec.encode(text)
        except (ValueError, KeyError, TypeError):
            if self.strict:
                raise
            ids = [*(token.id for token in self.tokenizer.encode(text, self.table)), self.tokenizer.id["<|end|>"]]
        # Such a slot may stand for what is shown no longer.
        self.unsure |= self.tokenizer.shared.intersection(ids)
        self.open()
        self.add(ids, 1)

    def open(self):
        self.add([self.tokenizer.id["<|reply|>"]])


def render(prompt, tokenizer):
    """A prompt {"tools": [...], "messages": [{"user": [text, ...]} | {"assistant": text}]}, ready to go on. While it is too
    long, the oldest reply with all that follows it up to the next is left out; what stands before the first reply stays."""
    head, turns = items(prompt["messages"])
    while True:
        written = write(head, turns, Prompt(tokenizer, prompt["tools"]))
        if written.table.ran_out():
            # Which words need a slot most shows at the end.
            written = write(head, turns, Prompt(tokenizer, prompt["tools"], written.table.shared()))
        written.open()
        if len(written.ids) <= PROMPT_IDS or not turns:
            return written
        turns = turns[1:]


def write(head, turns, prompt):
    for item in [*head, *(item for turn in turns for item in turn)]:
        if isinstance(item, Said):
            prompt.show(item)
        else:
            prompt.reply(item)
    return prompt


def items(messages):
    """What stands before the first reply, and each reply with all that follows it until the next."""
    head, turns = [], []
    for nth, message in enumerate(messages):
        if "assistant" in message:
            turns.append([message["assistant"]])
            continue
        place = turns[-1] if turns else head
        for part_nth, part in enumerate(message["user"]):
            place += shown(part, nth == 0 and part_nth == 0)
    return head, turns


def shown(part, first):
    """One part of a user message."""
    if part.startswith("[result "):
        header, _, body = part.partition("]\n")
        return [result(header.split(" ")[-1], json.loads(body))]
    part = part.strip()
    control, text = "<|user|>", part
    # The task stands as it is, but what begins a process that has none is no task.
    if not first or part.startswith(("<untrusted ", SUMMARY.strip())):
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
    return [Said(control, text)] if text else []


def result(name, outcome):
    """A result as the kernel shows it."""
    if outcome["status"] == "ERROR":
        error = outcome["error"]
        return Said("<|error|>", f"{error['code']} {error['message']}")
    was_cut = outcome.get("truncated", False)
    value = outcome["shown"] if was_cut else outcome["result"]
    was_cut = was_cut or (isinstance(value, dict) and value.get("truncated", False))
    return Said("<|result|>", text_of(name, value) or "(nothing)", was_cut, name in grammar.NAMING)


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
