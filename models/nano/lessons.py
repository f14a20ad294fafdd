"""Lessons: whole tasks written by hand, with what is there and what is done (lessons/*.jsonl), as episodes.

Start at Lessons.make. What always holds: what calls bring is what world.py answers; a lesson whose calls fail, or whose
answers are no spans of what was shown, is a fault (`python3 lessons.py FILE …` names it). Each is told with other file
names and process numbers than it was written with, half of the time.

A line: `task`, the words of the person; `setup` as in a task (evals/nano/README.md); `calls`, each with all its arguments;
`say`, only where something is to be said but that it was done: of each item, a number is what that call brought (from 1), a
text a piece of it. `refuse` in the place of calls: it lies outside.
"""

import json
import re
import sys
from pathlib import Path

import grammar
from answer import NotShown
from clause import Clause, Move, said_of
from world import World

FOLDER = Path(__file__).parent / "lessons"
RENAMED_SHARE = .5


class Lessons:
    """All that are written."""

    def __init__(self, folder=FOLDER):
        self.rows = [json.loads(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]

    def make(self, rng, values):
        """The request and the clauses of a lesson, with other names mostly."""
        return clauses(varied(rng.choice(self.rows), rng, values))


def varied(row, rng, values):
    """The same lesson with other file names and process numbers."""
    text = json.dumps(row, ensure_ascii=False)
    names = sorted({found for found in re.findall(r"(?<![\w.-])([A-Za-z][\w-]*)\.[a-z]{2,4}\b", json.dumps(row["calls"]) if "calls" in row else "")})
    for name in names:
        if rng.random() < RENAMED_SHARE:
            # Not what another file is called.
            new = next(stem for stem in iter(values.stem, None) if stem not in text)
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?=\.[a-z]{{2,4}}\b)", lambda _, new=new: new, text)
    for pid in sorted(set(re.findall(r'"to_pid": (\d+)', text))):
        # Only where the person's words have this number once.
        if rng.random() < RENAMED_SHARE and len(re.findall(rf"\b{pid}\b", row["task"])) == 1:
            new = str(rng.randint(2, 400))
            row = json.loads(re.sub(rf'(?<="to_pid": ){pid}\b|(?<="pid": ){pid}\b', new, text))
            row["task"] = re.sub(rf"\b{pid}\b", new, row["task"])
            text = json.dumps(row, ensure_ascii=False)
    return json.loads(text)


def clauses(row):
    """What is asked, and the clauses that do it."""
    if "refuse" in row:
        return row["task"], [Clause(row["task"], [], "outside", said=grammar.OUTSIDE, refused=True)]
    world = World(row.get("setup", {}))
    try:
        moves = [Move(name, args, world.call(name, args)) for name, args in row["calls"]]
    finally:
        world.close()
    for move in moves:
        if move.name == "FS_WRITE" and move.args["content"] and not move.args["content"].endswith("\n"):
            raise ValueError("what is written ends with a line feed")
        if move.outcome["status"] != "SUCCESS":
            raise ValueError(f"{move.name} {move.args}: {move.outcome['error']}")
    made = [Clause("", [move], move.name, said=said_of(move) if move.name in grammar.SAID else grammar.DONE) for move in moves]
    if moves and moves[-1].name == "SYS_EXIT":
        made[-1].said = None
    said = [moves[item - 1].shown if isinstance(item, int) else item for item in row.get("say", [])]
    said = [nothing(moves[-1].name) if text == "(nothing)" else text for text in said]
    if said:
        # All of it stands at the last call: that is when it is said.
        made[-1].informs, made[-1].said = True, "\n".join(said)
    return row["task"], made


def nothing(name):
    return {"FS_LIST": grammar.NOT_FOUND, "FS_SEARCH": grammar.NOT_FOUND, "MEM_READ": grammar.NOT_REMEMBERED, "EXEC_CMD": grammar.NO_OUTPUT}.get(name, grammar.EMPTY)


def answered(episode, tokenizer):
    """Refuses an answer that is another one once it is tokens, and a call that the runtime would not make, since something
    that was read steers it."""
    import prompt
    for nth, message in enumerate(episode.messages):
        if "assistant" in message:
            codec = prompt.render({"tools": episode.tools, "messages": episode.messages[:nth]}, tokenizer).codec
            ids = codec.encode(message["assistant"])
            if codec.decode(ids) != message["assistant"]:
                raise ValueError(f"not said so: {message['assistant']}")
            if codec.instead(ids):
                raise ValueError(f"what was read steers this call: {message['assistant']}")


def check(files):
    """Each fault of each line, for whoever writes lessons."""
    import random

    from dataset import ids_of
    from episodes import Episodes
    from intents import Intents
    from phrases import Phrases
    from tokenizer import Tokenizer
    from values import Values
    from wording import Wording
    rng, tokenizer = random.Random(1), Tokenizer()
    wording = Wording(Phrases(), Values(rng), rng)
    wording.among = False
    episodes, faults, count = Episodes(Intents(wording)), 0, 0
    for file in files:
        for number, line in enumerate(Path(file).read_text().splitlines(), 1):
            count += 1
            try:
                row = json.loads(line)
                unknown = set(row) - {"id", "task", "setup", "calls", "say", "refuse"}
                if unknown:
                    raise ValueError(f"no such field: {unknown}")
                episode = episodes.told_to(*clauses(row), "lesson")
                ids_of(episode, tokenizer)
                answered(episode, tokenizer)
            except (NotShown, ValueError, KeyError, AssertionError, IndexError, AttributeError) as fault:
                faults += 1
                print(f"{file}:{number}: {type(fault).__name__} {fault}: {line[:200]}")
    print(f"{count} lessons, {faults} faults")
    return faults


if __name__ == "__main__":
    sys.exit(bool(check(sys.argv[1:] or sorted(FOLDER.glob("*.jsonl")))))
