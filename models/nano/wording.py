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
because since so just only still please hey hi ok okay well oh quick nobody you've they've she's he's everyone everybody whoever whatever wherever somebody's there'll um uh right sorry yes no small short long today tomorrow yesterday tonight""".split())
NEUTRAL = ["hey, ", "hi, ", "ok, ", "okay: ", "please: ", "hello, ", "so, ", "- ", "right, ", "hm, ", "next: ", "now: ", "task: "]
# What in a bare text looks like the end of a clause, or like the sentence around it.
PARTING, QUOTE_MARKS = re.compile(r"[,;:.!?—–-] |[.!?]$| and | then "), "\"'`“«‘„"
SMALL = set("the a an of to in and is are was be for on with at from that it we you not this my our as by or so if".split())
# A name that says whose it is.
OWNED = re.compile(r"(the|my|our|your) |\w+'s? ")
# A bare text at the end that is a sentence of its own.
SENTENCE = "sentence"
CONTEXT_SHARE, AFTERTHOUGHT_SHARE = .25, .1
QUOTES = ['""', "''", "``", "“”", "«»", "‘’", "„“"]


class Wording:
    """Makes texts from wordings and values."""

    def __init__(self, phrases, values, rng, held=False):
        self.phrases, self.values, self.rng, self.held = phrases, values, rng, held
        # Whether a request may stand among other sentences.
        self.among = True
        # What the slots of the last wording were filled with.
        self.last = {}

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

    def bordered(self, value):
        """A bare value within a sentence stands between quotation marks, mostly, where it looks like a part of one."""
        words = value.lower().split(" ")
        plain = len(words) <= 3 and not SMALL.intersection(words) and not PARTING.search(value)
        return value if plain or value[0] in QUOTE_MARKS or self.rng.random() < .25 and not PARTING.search(value) else self.quoted(value)

    def maybe(self, value, share=.15):
        """The value, sometimes quoted."""
        return self.quoted(value) if " " in value or self.rng.random() < share else value

    def fill(self, section, bare_end=None, bare=(), **slots):
        """A wording of a section with its slots filled, and whether it ends with a value. `bare_end`: texts that may stand
        without quotation marks where the wording ends with their slot; `bare`: slots that stand so now."""
        wording = self.mistyped(self.pick(section))
        for slot in bare:
            if not wording.endswith("{" + slot + "}"):
                slots[slot] = self.bordered(slots[slot])
        for slot, text in (bare_end or {}).items():
            if wording.endswith("{" + slot + "}") and self.rng.random() < .6:
                slots[slot] = text
        # Nobody says "the my nickname" or "the Maya's instrument".
        wording = re.sub(r"\b(the|my|our|your) (?={(key|name)})", lambda found: "" if OWNED.match(slots.get(found.group(2)) or "") else found.group(), wording)
        self.last = slots
        for slot in re.findall(r"{(\w+)}", wording):
            wording = wording.replace("{" + slot + "}", "\0" + slot + "\0", 1)
        text = re.sub("\0(\\w+)\0", lambda found: slots[found.group(1)], wording)
        return text, wording.rsplit("\0", 2)[-2:] if wording.endswith("\0") else None

    def orders(self, text):
        """Whether a text is an order, before which "please" may stand."""
        first = text.split(" ")[0].lower().rstrip(",:")
        return first not in NO_VERBS and self.phrases.orders_with(first) and text[:1].isalpha()

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

    def surrounded(self, request, tail=False):
        """A request as it stands among other sentences, which ask for nothing."""
        rng = self.rng
        if not self.among:
            return request
        if rng.random() < CONTEXT_SHARE:
            context = self.values.written("contexts")
            if context[-1] in ".!?" and rng.random() < .5 and self.phrases.begins(request.split(" ")[0]):
                request = request[0].upper() + request[1:]
            request = context + rng.choice([" "] * 9 + ["\n"]) + request
        if not tail and rng.random() < AFTERTHOUGHT_SHARE:
            request = request.rstrip(".!?") + self.values.written("afterthoughts")
        return request

    def sentence(self, text, ask=False, tail=False):
        """The clause as one would say it: politeness before and behind, a capital, a full stop."""
        rng = self.rng
        if not ask and not self.orders(text) or not text[:1].isalpha():
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
            # Behind a sentence that stands bare nothing is added: its full stop is its own.
            behind = rng.choice(["", "?"]) if ask else "" if tail == SENTENCE else rng.choice(["", "", "", ".", "!"])
        text = before + text + behind
        first = text.split(" ")[0]
        if not before and (first in VALUES or not self.phrases.begins(first)):
            return text
        if rng.random() < .35 and text[0].isalpha() and text[0].isascii():
            text = text[0].upper() + text[1:]
        return text
