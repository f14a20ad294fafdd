"""What a nano model may answer: the calls it knows, the shapes of their arguments, and the sentences it says.

Start at CALLS and SAY. What always holds: every answer in the training data is one of these shapes or sentences, with
each `{}` a verbatim span of something in the prompt; so the runtime can hold answers to this file's export in the GGUF
metadata, and hard-codes nothing. Fields stand in the order of the kernel's schemas; test.py checks names and order against
docs/reference/system-calls.md.
"""

import json

COPY, LINE, INT, PID, DURATION, CRON, TRUE, EDITS = "copy", "line", "int", "pid", "duration", "cron", "true", "edits"
# How the tokens of fields, literals and sentences are named, so that no word of a text is one of them.
FIELD_MARK, LITERAL_MARK, SAID_MARK = "@:", "=:", "!:"

# Fields whose text may come from anywhere: what is written, sent or said. All others steer a call.
CONTENTS = ["content", "text", "value", "result"]
# Calls that bring names: each line of what a list or a search says begins with one, and a new process has its number.
NAMING = ["FS_LIST", "FS_SEARCH", "SPAWN_AGENT"]

# What a helper may be given. Without patterns: the kernel cuts it down to what the parent has.
PERMISSIONS = ["FS_READ", "FS_WRITE", "FS_EDIT", "FS_LIST", "FS_SEARCH", "FS_DELETE", "FS_MOVE", "EXEC_CMD", "NET_FETCH",
               "MEM_READ", "MEM_WRITE", "SEND_MSG"]

# Commands that a request may mean without spelling them out.
COMMANDS = ["{}", "wc -l {}", "wc -w {}", "wc -c {}", "sort {}", "head -n {} {}", "tail -n {} {}", "head -n 1 {}",
            "tail -n 1 {}", "mkdir -p {}", "cp {} {}", "cp -r {} {}", "touch {}", "chmod +x {}", "diff {} {}",
            "sha256sum {}", "du -sh {}", "date", "whoami", "pwd", "uname -a", "df -h", "uptime", "hostname", "env",
            "python3 {}", "sh {}", "ls -la {}", "ls -la", "nproc", "free -m", "ps aux", "tac {}", "sort -u {}", "sort -r {}"]

# Each call in table order, with its shapes; a shape is its fields in schema order.
CALLS = {
    "SPAWN_AGENT": [[("role", ["helper"]), ("permissions", ["list", PERMISSIONS]), ("task", COPY)],
                    [("role", COPY), ("permissions", ["list", PERMISSIONS]), ("task", COPY)],
                    [("role", ["helper"]), ("permissions", ["list", PERMISSIONS]), ("task", COPY), ("name", COPY)]],
    "WAIT": [[], [("pid", PID)]],
    "KILL": [[("pid", PID)], [("pid", PID), ("signal", ["STOP", "CONT", "KILL"])]],
    "EXEC_CMD": [[("cmd", COMMANDS)]],
    "SYS_EXIT": [[("code", INT)], [("code", INT), ("result", COPY)]],
    "FS_READ": [[("path", COPY)]],
    "FS_WRITE": [[("path", COPY), ("content", LINE)], [("path", COPY), ("content", LINE), ("mode", ["append"])],
                 [("path", COPY), ("content", [""])]],
    "FS_EDIT": [[("path", COPY), ("edits", EDITS)]],
    "FS_LIST": [[], [("path", COPY)], [("glob", ["**/*", "**/*{}", "**/*.{}", "**/{}"])],
                [("path", COPY), ("glob", ["**/*{}", "**/*.{}"])]],
    "FS_SEARCH": [[("pattern", COPY)], [("pattern", COPY), ("path", COPY)],
                  [("pattern", COPY), ("glob", ["*{}", "*.{}"])]],
    "FS_WATCH": [[("path", COPY)]],
    "FS_DELETE": [[("path", COPY)]],
    "FS_MOVE": [[("from", COPY), ("to", ["{}", "{}/{}"])]],
    "NET_FETCH": [[("url", COPY)]],
    "MEM_WRITE": [[("key", COPY), ("value", COPY)]],
    "MEM_READ": [[("query", COPY)]],
    "MEM_FORGET": [[("key", COPY)]],
    "SEND_MSG": [[("to_pid", PID), ("content", COPY)], [("to", COPY), ("content", COPY)]],
    "RECV_MSG": [[], [("timeout_s", DURATION)]],
    "SYS_WRITE_STDOUT": [[("text", LINE)]],
    "SLEEP": [[("seconds", DURATION)]],
    "SYS_SCHEDULE": [[("seconds", DURATION), ("prompt", COPY)], [("seconds", DURATION), ("prompt", COPY), ("once", TRUE)],
                     [("cron", CRON), ("prompt", COPY)], [("cron", CRON), ("prompt", COPY), ("once", TRUE)]],
    "SYS_UNSCHEDULE": [[("timer_id", COPY)]],
    "ASK_USER": [[("question", COPY)]],
}

OUTSIDE = "I cannot do that: it lies outside what I learned, so I did nothing. A larger model could do it."
UNCLEAR = "I did not understand that, so I did nothing. Please name the action and, word by word, what it is about."
WHO = ("I am aos-nano, the small model inside AOS. I run on this machine, without a network, and do plain tasks: files, "
       "commands, memory, messages, timers, helpers.")
HELLO = "Hello! What shall I do?"
WELCOME = "You are welcome."
EMPTY = "It is empty."
NO_OUTPUT = "Done. It printed nothing."
NOT_FOUND = "Nothing was found."
NOT_REMEMBERED = "I remember nothing about that."
NOT_THERE = "I do not find that there."
NOTED = "Noted."
NO_RESULT = "It ended without a result."
DONE = "Done."
LACK = "I may not use {} here, so I did nothing."
FAILED = "That did not work: {}"
SHOWN_CUT = "It is too long for me to repeat whole. It begins: {}"

# In the place of an answer whose words may mean several texts. No choice of the model, so none of SAY.
UNSURE = "I cannot tell which of several words is meant here, so I leave it. A larger model could do it."

# After one call that acts: what is said. A field's name stands for its value.
SAID = {
    "FS_WRITE": "Wrote {path}.", "FS_WRITE append": "Added it to {path}.", "FS_EDIT": "Changed {path}.",
    "FS_DELETE": "Deleted {path}.", "FS_MOVE": "Moved {from}.", "MEM_WRITE": "I will remember that.",
    "MEM_FORGET": "Forgotten: {key}.", "SEND_MSG": "Sent.", "SLEEP": "I waited.", "SYS_SCHEDULE": "The timer is set.",
    "SYS_UNSCHEDULE": "The timer {timer_id} is cancelled.", "KILL": "Process {pid} got the signal.",
    "SPAWN_AGENT": "The helper is at work.", "FS_WATCH": "I watch {path}.", "SYS_WRITE_STDOUT": DONE,
}

SAY = [OUTSIDE, UNCLEAR, WHO, HELLO, WELCOME, EMPTY, NO_OUTPUT, NOT_FOUND, NOT_REMEMBERED, NOT_THERE, NO_RESULT,
       NOTED, DONE, FAILED, SHOWN_CUT, *(LACK.format(name) for name in CALLS),
       *dict.fromkeys("{}".join(part.split("}", 1)[-1] for part in said.split("{")) for said in SAID.values())]
SAY = list(dict.fromkeys(SAY))


def shape_of(name, args):
    """The shape whose fields these arguments have; a call that fits none is a fault of the generator."""
    for shape in CALLS[name]:
        if [field for field, _ in shape] == list(args) and all(fits(kind, args[field]) for field, kind in shape):
            return shape
    raise ValueError(f"{name} has no shape for {args}")


def fits(kind, value):
    """Whether a value can be of this kind, by its type and literals alone (spans are the prompt's affair)."""
    if kind in (COPY, LINE):
        return isinstance(value, str) and value != ""
    if kind in (INT, PID, DURATION):
        return isinstance(value, int) and not isinstance(value, bool)
    if kind == TRUE:
        return value is True
    if kind == CRON:
        return isinstance(value, str) and len(value.split(" ")) == 5
    if kind == EDITS:
        return isinstance(value, list) and all(list(edit) == ["old", "new"] for edit in value)
    if kind[0] == "list":
        return isinstance(value, list) and all(item in kind[1] for item in value)
    return isinstance(value, str) and any(matches(template, value) for template in kind)


def matches(template, value):
    """Whether a template with `{}` could have made this value; spans may be anything but empty."""
    parts = template.split("{}")
    if not value.startswith(parts[0]):
        return False
    at = len(parts[0])
    for nth, part in enumerate(parts[1:]):
        last = nth == len(parts) - 2
        found = len(value) - len(part) if last else value.find(part, at + 1)
        if found <= at or (last and not value.endswith(part)):
            return False
        at = found + len(part)
    return at == len(value)


def esc(text):
    """The inside of the JSON string that serde_json writes for a text."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def say(text):
    """A reply in words."""
    return '{"say":"' + esc(text) + '"}'


def call(name, args):
    """A reply that makes one call, in the only way it is written."""
    shape_of(name, args)
    written = json.dumps(args, ensure_ascii=False, separators=(",", ":"))
    return '{"calls":[{"name":"' + name + '","args":' + written + "}]}"


def field(name):
    """The token of a field."""
    return FIELD_MARK + name


def literal(template):
    """The token of a literal."""
    return LITERAL_MARK + template


def said(template):
    """The token of a sentence."""
    return SAID_MARK + template


def tokens():
    """The tokens that answers have beside those of texts: calls, fields, literals, sentences."""
    kinds = [(name, kind) for shapes in CALLS.values() for shape in shapes for name, kind in shape]
    literals = [template for _, kind in kinds if isinstance(kind, list) and kind[0] != "list" for template in kind]
    found = [*CALLS, *(field(name) for name, _ in kinds), *map(literal, literals), *map(said, SAY)]
    return list(dict.fromkeys(found))


def export():
    """The metadata value `aos.nano.grammar`."""
    return json.dumps({"calls": CALLS, "say": SAY, "contents": CONTENTS, "naming": NAMING, "noted": NOTED}, ensure_ascii=False, separators=(",", ":"))
