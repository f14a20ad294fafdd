"""A wording filled with values: quotation marks, typing mistakes, capitals; and the sentence around a clause.

Start at Wording.fill. What always holds: a value stands in the text verbatim, whatever is done to the words around it.
"""

import re

from values import KEYS, NAMES, PLAIN, TODOS

# Words that may begin a value: a clause that begins with one keeps its small letter, for it may be the value's.
VALUES = {word.split(" ")[0] for words in (KEYS, NAMES, PLAIN, TODOS) for word in words}
# Words with which no order begins: what follows is a sentence of its own.
NO_VERBS = set("""i i'd i'm i've i'll we we'd we're we've you your he she it it's its they the a an this that these those there there's here in into inside
to from at on onto of for with within without under by behind before after once when whenever while as is are was were am be been would could can might may
should shall will must do don't does did mind any anything anyone every each all both some somebody someone no not never nothing new now next time what what's
which who where why how if in case please let's my our their one two another more also next up out over per regarding concerning about between until via
because since so just only still please hey hi ok okay""".split())
NEUTRAL = ["hey, ", "hi, ", "ok, ", "okay: ", "please: ", "hello, ", "so, ", "- ", "right, ", "hm, ", "next: ", "now: ", "task: "]
QUOTES = ['""', "''", "``", "“”", "«»", "‘’", "„“"]


class Wording:
    """Makes texts from wordings and values."""

    def __init__(self, phrases, values, rng, held=False):
        self.phrases, self.values, self.rng, self.held = phrases, values, rng, held

    def pick(self, section):
        return self.phrases.pick(section, self.rng, self.held)

    def quoted(self, value):
        """The value between quotation marks that do not stand in it."""
        fitting = [pair for pair in QUOTES if pair[0] not in value and pair[1] not in value]
        # Straight marks are what people type.
        straight = [pair for pair in fitting if pair in QUOTES[:3]]
        pairs = straight if straight and self.rng.random() < .9 else fitting or ["“”"]
        pair = pairs[0] if self.rng.random() < .5 else self.rng.choice(pairs)
        return pair[0] + value + pair[1]

    def maybe(self, value, share=.15):
        """The value, sometimes quoted."""
        return self.quoted(value) if " " in value or self.rng.random() < share else value

    def fill(self, section, **slots):
        """A wording of a section with its slots filled, and whether it ends with an unquoted free text."""
        wording = self.pick(section)
        wording = self.mistyped(wording)
        for slot in re.findall(r"{(\w+)}", wording):
            wording = wording.replace("{" + slot + "}", "\0" + slot + "\0", 1)
        text = re.sub("\0(\\w+)\0", lambda found: slots[found.group(1)], wording)
        return text, wording.rsplit("\0", 2)[-2:] if wording.endswith("\0") else None

    def mistyped(self, wording):
        """Now and then a slip of the fingers in a word of the wording."""
        if self.rng.random() > .07:
            return wording
        places = [found.span() for found in re.finditer(r"(?<![{\w])[a-z]{4,}(?![}\w])", wording)]
        if not places:
            return wording
        begin, end = self.rng.choice(places)
        at = self.rng.randrange(begin + 1, end - 1)
        kind = self.rng.random()
        if kind < .35:
            slip = wording[at + 1] + wording[at]
            return wording[:at] + slip + wording[at + 2:]
        if kind < .6:
            return wording[:at] + wording[at + 1:]
        if kind < .8:
            return wording[:at] + wording[at] + wording[at:]
        return wording[:at] + self.rng.choice("abcdefghijklmnopqrstuvwxyz") + wording[at + 1:]

    def sentence(self, text, ask=False, tail=False):
        """The clause as one would say it: politeness before and behind, a capital, a full stop."""
        rng = self.rng
        if not ask and text.split(" ")[0].lower().rstrip(",:") in NO_VERBS or not text[:1].isalpha():
            # A sentence of its own: "I would like you to I need …" nobody says.
            before = rng.choice(NEUTRAL) if rng.random() < .2 else ""
            behind = rng.choice([" please", ", please", ", thanks", ". Thanks", " thanks"]) if rng.random() < .12 else ""
        elif ask:
            before = self.phrases.pick("before.ask", rng) if rng.random() < .25 else ""
            behind = self.phrases.pick("behind.ask", rng) if rng.random() < .75 else ""
        else:
            before = self.phrases.pick("before.do", rng) if rng.random() < .4 else ""
            behind = self.phrases.pick("behind.do", rng) if rng.random() < .3 else ""
            if behind == "" and before.strip().split(" ")[0] in ("could", "can", "would", "will", "might", "how", "is", "may"):
                behind = rng.choice(["", "?", "?"])
        if tail:
            behind = rng.choice(["", "", "", ".", "!"]) if not ask else rng.choice(["", "?"])
        text = before + text + behind
        first = text.split(" ")[0]
        if not before and (first in VALUES or not self.phrases.begins(first)):
            return text
        if rng.random() < .35 and text[0].isalpha() and text[0].isascii():
            text = text[0].upper() + text[1:]
        return text
