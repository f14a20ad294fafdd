"""Writes compositions/*.jsonl: tasks in held-out wordings of the generator, to be played through the real kernel.

Start at task. The form is that of the tasks written apart (evals/nano/): {"id", "kind", "steps", "task", "setup", "expect"}.
What always holds: wordings and words are those that training never sees; what is set up makes each step succeed; each call
is expected with its whole arguments, and what was wanted is expected in the answer.

    python3 compositions.py          # writes them; --check fails where they differ
"""

import json
import random
import sys
from pathlib import Path

from episodes import Episodes
from intents import Intents
from phrases import Phrases
from values import Values
from wording import Wording


COUNTS = {"single": 200, "two": 60, "three": 120}
# What can be set up and judged; weights as in training.
SINGLE = ["read", "read_ask", "write", "append", "edit", "strike", "list_dir", "list_dir_glob", "search", "search_in", "delete", "move", "move_dir", "fact",
          "shell", "remember", "recall", "forget", "send_pid", "print", "say", "sleep", "remind", "every", "cron", "exit", "fetch", "spawn"]
STEPS = ["read", "write", "append", "edit", "delete", "move", "move_dir", "fact", "shell", "remember", "forget", "send_pid", "remind", "search_in", "list_dir"]
SHELLS = {"wc -l", "wc -w", "wc -c", "sort", "head", "tail", "mkdir", "cp", "sort -u"}


class Room:
    """What a task needs to be there before it begins."""

    def __init__(self, values):
        self.values, self.files, self.memory, self.pages, self.agents = values, {}, [], {}, []

    def file(self, path, content=None):
        if path.startswith(("/", "../", "./")) or path in self.files:
            return False
        # No file may be a folder of another.
        if any(other.startswith(path + "/") or path.startswith(other + "/") for other in self.files):
            return False
        self.files[path] = self.values.text(3) + "\n" if content is None else content
        return True

    def prepare(self, move):
        """Sets up what a call needs; False where that cannot be."""
        name, args = move.name, move.args
        path = args.get("path", "")
        if path.startswith(("/", "../", "./")):
            return False
        if name == "FS_READ":
            content = move.outcome["result"]["content"]
            return content.strip() != "" and self.file(path, content)
        if name == "FS_WRITE":
            return args.get("mode") != "append" or self.file(path, "begin\n")
        if name == "FS_EDIT":
            old = args["edits"][0]["old"]
            return "\n" not in old and self.file(path, f"= =\n{old}\n= =\n") and self.files[path].count(old) == 1
        if name == "FS_DELETE":
            return self.file(path if "." in path else path + "/x")
        if name == "FS_MOVE":
            return not args["to"].startswith(("/", "../", "./")) and args["to"] not in self.files and self.file(args["from"])
        if name == "FS_LIST":
            return bool(args.get("path")) and all(self.file(entry["path"].rstrip("/")) for entry in move.outcome["result"]["entries"]) and \
                bool(move.outcome["result"]["entries"])
        if name == "FS_SEARCH":
            hits = move.outcome["result"]["matches"]
            return len(hits) == 1 and args["pattern"].isalnum() and self.file(hits[0]["path"], hits[0]["text"] + "\n") and not path.endswith("/")
        if name == "EXEC_CMD":
            return self.command(args["cmd"])
        if name in ("MEM_READ", "MEM_FORGET"):
            pairs = [(hit["key"], hit["value"]) for hit in move.outcome["result"]["hits"]] if name == "MEM_READ" else [(args["key"], "x")]
            self.memory += [{"key": key, "value": value} for key, value in pairs]
            return len(pairs) == 1 and pairs[0][0] == args.get("query", args.get("key"))
        if name == "SEND_MSG":
            if "to_pid" not in args:
                return False
            self.agents.append({"pid": args["to_pid"], "name": self.values.who()})
            return True
        if name == "NET_FETCH":
            self.pages[args["url"]] = move.outcome["result"]["body"]
            return args["url"].startswith("http://") and bool(self.pages[args["url"]].strip()) and move.outcome["result"]["status"] == 200 and "?" not in args["url"]
        return name in ("MEM_WRITE", "SLEEP", "SYS_SCHEDULE", "SYS_EXIT", "SPAWN_AGENT", "SYS_WRITE_STDOUT")

    def command(self, command):
        words = command.split(" ")
        if words[0] not in SHELLS and " ".join(words[:2]) not in SHELLS:
            return False
        if words[0] in ("mkdir",):
            return words[-1].isascii()
        files = [words[1]] if words[0] == "cp" else [words[-1]]
        return all(self.file(path) for path in files) and (words[0] != "cp" or (words[2] not in self.files))

    def shown(self):
        parts = {"files": self.files, "memory": self.memory, "pages": self.pages, "agents": self.agents}
        return {name: part for name, part in parts.items() if part}


def wanted(clauses):
    """Texts that the answer must hold: what was read, looked up or said."""
    found = []
    for clause in clauses:
        if clause.informs and clause.intent in ("read", "fact", "recall", "say", "fetch") and clause.said:
            found += [part for part in clause.said.split("\n") if part.strip()]
    return found


def task(number, kind, phrases):
    """A task, or None where this number gives none that can be set up."""
    rng = random.Random(f"compositions {kind} {number}")
    values = Values(rng, True)
    intents = Intents(Wording(phrases, values, rng, True))
    # Sentences around a request are not of words it knows.
    intents.w.among = False
    allowed = SINGLE if kind == "single" else STEPS
    intents.names, intents.weights = allowed, [intents.weights[intents.names.index(name)] for name in allowed]
    intents.faulty = False
    made = Episodes(intents)
    made.SOURCES = {"read": 6, "fact": 4, "recall": 3}
    made.SINKS = {"write": 6, "append": 2, "remember": 3}
    episode = made.make({"single": "one", "two": rng.choice(["two", "chain"]), "three": rng.choice(["three", "three", "chain_more"])}[kind])
    moves = [move for clause in episode.clauses for move in clause.moves]
    steps = len(moves) + any(not clause.moves for clause in episode.clauses)
    room = Room(values)
    if steps != {"single": 1, "two": 2, "three": 3}[kind] or any(move.outcome["status"] == "ERROR" for move in moves):
        return None
    made_here = {move.args[field] for move in moves for field in ("to", "path") if move.name in ("FS_MOVE", "FS_WRITE") and field in move.args}
    if len(episode.request) > 400 or not all(room.prepare(move) for move in moves) or (made_here & set(room.files) and kind != "single"):
        return None
    if any(source.intent in ("fact", "recall") and source.product is None for source in episode.clauses if source.informs):
        return None
    # What a helper may do follows from its task; the request does not say it.
    expect = {"calls": [[move.name, {field: value for field, value in move.args.items() if field != "permissions"}] for move in moves]} if moves else {}
    says = wanted(episode.clauses)
    if says and not any(move.name == "SYS_EXIT" for move in moves):
        expect["says"] = says
    row = {"kind": kind, "steps": steps, "task": episode.request, "setup": room.shown(), "expect": expect}
    return row if expect else None


def lines(phrases):
    found = {}
    for kind, count in COUNTS.items():
        rows, number, seen = [], 0, set()
        while len(rows) < count:
            row = task(number, kind, phrases)
            number += 1
            if row and row["task"] not in seen:
                seen.add(row["task"])
                rows.append({"id": f"{kind[0]}{len(rows):03}", **row})
        found[f"{kind}.jsonl"] = "".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows)
    return found


def main():
    folder = Path(__file__).parent / "compositions"
    folder.mkdir(exist_ok=True)
    for name, text in lines(Phrases()).items():
        if "--check" in sys.argv:
            if (folder / name).read_text() != text:
                raise SystemExit(f"{name} is not what the code gives; run compositions.py")
        else:
            (folder / name).write_text(text)
            print(name, text.count("\n"), "tasks")


if __name__ == "__main__":
    main()
