"""A clause: one thing asked for, the calls that do it with what comes of them, and what is said after.

Start at Clause. What always holds: the calls of a clause stop at the first that fails; what is said is made of spans of
the request and the results, or is one of the sentences of grammar.py.
"""

from dataclasses import dataclass, field

import grammar
import prompt


@dataclass
class Clause:
    """`text` has no politeness around it. `product` is what "it" means afterwards, None where there is nothing."""

    text: str
    moves: list
    intent: str
    ask: bool = False
    # The text ends with unquoted words of a value: nothing but a full stop may follow.
    tail: bool = False
    # What is said where this clause ends the task; None after a call that ends the process.
    said: str | None = grammar.DONE
    # What is said is what was wanted, not only that it was done.
    informs: bool = False
    product: str | None = None
    refused: bool = False
    parts: list = field(default_factory=list)

    @property
    def failed(self):
        return bool(self.moves) and self.moves[-1].outcome["status"] == "ERROR"


@dataclass
class Move:
    """A call with its outcome as the kernel shows it."""

    name: str
    args: dict
    outcome: dict

    @property
    def shown(self):
        """The text of the outcome in the prompt, before it is escaped."""
        if self.outcome["status"] == "ERROR":
            error = self.outcome["error"]
            return f"{error['code']} {error['message']}"
        return prompt.text_of(self.name, self.outcome["result"]) or "(nothing)"


def success(**result):
    return {"status": "SUCCESS", "result": result}


def error(code, message):
    return {"status": "ERROR", "error": {"code": code, "message": message}}


def said_of(move):
    """What is said after one call that acts."""
    name = move.name + (" append" if move.args.get("mode") == "append" else "")
    return grammar.SAID[name].format(**move.args)
