"""The wordings: lines of phrases/*.txt, where `(a|b|)` means one of these, `@NAME` a macro and `{slot}` a value.

Start at Phrases.pick. What always holds: a wording whose hash falls into the held-out part is never given for training,
only for evaluation ("new compositions of words it knows"); lines with few expansions are never held out, since then words
would be unknown rather than compositions new.
"""

import random
import re
import zlib
from pathlib import Path

HELD_ONE_IN, EXPANSIONS_MIN = 20, 60


def parse(text):
    """A line as a tree: a str, or a list of alternatives, each a list of trees."""
    def sequence(at):
        nodes, start = [], at
        while at < len(text) and text[at] not in "|)":
            if text[at] == "(":
                if start < at:
                    nodes.append(text[start:at])
                choices, at = alternatives(at + 1)
                nodes.append(choices)
                start = at
            else:
                at += 1
        if start < at:
            nodes.append(text[start:at])
        return nodes, at

    def alternatives(at):
        choices = []
        while True:
            nodes, at = sequence(at)
            choices.append(nodes)
            if text[at] == ")":
                return choices, at + 1
            at += 1

    nodes, at = sequence(0)
    if at != len(text):
        raise ValueError(f"brackets do not match in: {text}")
    return nodes


def count(nodes):
    """How many wordings a tree has."""
    total = 1
    for node in nodes:
        if isinstance(node, list):
            total *= sum(count(choice) for choice in node)
    return total


def expand(nodes, rng):
    """One wording of a tree. Each alternative is as likely as the next, so rare patterns are seen too."""
    return "".join(node if isinstance(node, str) else expand(rng.choice(node), rng) for node in nodes)


class Phrases:
    """All wordings by `intent.kind`. `held` chooses the held-out part; what is never held out is in both."""

    def __init__(self, folder=Path(__file__).parent / "phrases"):
        self.lines, self.weights, self.firsts, self.orders = {}, {}, set(), set()
        for file in sorted(folder.glob("*.txt")):
            self.read(file)

    def read(self, file):
        macros, lines, section = {}, [], None
        for line in file.read_text().splitlines():
            if line.startswith("@") and " = " in line:
                name, _, text = line.partition(" = ")
                macros[name] = text
            elif re.match(r"# [a-z._-]+$", line):
                section = line[2:]
            elif line.strip() and not line.startswith("# "):
                lines.append((section, line))
        for section, line in lines:
            for name in sorted(macros, key=len, reverse=True):
                line = line.replace(name, macros[name])
            nodes = parse(f"({line})")
            firsts = set(re.findall(r"(?:^|[(|])([a-z']+)(?= )", line))
            self.firsts |= firsts
            # Whole requests begin with anything; the other files' lines mostly with a verb.
            if not file.name.startswith("plain-"):
                self.orders |= firsts
            wordings = count(nodes)
            self.lines.setdefault(section, []).append((nodes, wordings >= EXPANSIONS_MIN))
            # A line of many wordings needs more examples than one of few.
            self.weights.setdefault(section, []).append(len(str(wordings)) ** 2)

    def pick(self, section, rng, held=None):
        """A wording of a section. `held`: True only held-out ones where there are, False never, None no matter which."""
        lines = self.lines[section]
        if held:
            lines = [entry for entry in lines if entry[1]] or lines
        for _ in range(400):
            nodes, split = rng.choices(lines, self.weights[section])[0] if held is False else rng.choice(lines)
            wording = re.sub(r"  +", " ", expand(nodes, rng))
            if held is None or not split or is_held(wording) == held:
                return wording
        return wording

    def begins(self, word):
        """Whether a wording may begin with this word."""
        return word in self.firsts

    def orders_with(self, word):
        """Whether an order may begin with this word, so that politeness may stand before it."""
        return word in self.orders

    def has(self, section):
        return section in self.lines


def is_held(wording):
    """Whether a wording belongs to the held-out part."""
    return zlib.crc32(wording.strip().lower().encode()) % HELD_ONE_IN == 0


if __name__ == "__main__":
    phrases = Phrases()
    chance = random.Random(1)
    for name in phrases.lines:
        total = sum(count(nodes) for nodes, _ in phrases.lines[name])
        print(f"{name:16} {len(phrases.lines[name]):3} lines {total:12,} wordings  e.g. {phrases.pick(name, chance)!r}")
