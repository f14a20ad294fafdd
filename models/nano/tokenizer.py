"""The tokenizer: signs, whole words, numbers, and slots for every word it does not know; no bytes and no merges.

Start at Tokenizer.encode. A word that is not known becomes a slot of its class ("the third small word here"), the same one
wherever it stands in a prompt, so the network sees that two names are one and never has to spell; what a slot stands for is
read off the text again. What always holds: a token has its place in the text, and places never overlap; control tokens never
come from text. The rules are those of FORMAT.md, "Tokenizer", which the Rust runtime implements too; vectors/ binds both.
"""

import re
from pathlib import Path
from typing import NamedTuple

import grammar

HERE = Path(__file__).parent
CONTROL = ["<|pad|>", "<|end|>", "<|lack|>", "<|user|>", "<|reply|>", "<|result|>", "<|error|>", "<|told|>", "<|cut|>", "<|and|>",
           "<|whole1|>", "<|whole2|>", "<|whole3|>", "<|whole4|>", "<|s|>", "<|min|>", "<|h|>", "<|d|>", "<|w|>", "<|say|>"]
# A small word with a capital, a word in capitals, no blank where one is taken for granted.
CAPITAL, CAPITALS, GLUE = "<|capital|>", "<|capitals|>", "<|glue|>"
SLOTS = {"small": 128, "capital": 48, "capitals": 32, "digits": 64, "mixed": 64, "foreign": 64, "sign": 16}
SIGNS = [chr(code) for code in range(0x21, 0x7f) if not chr(code).isalnum()] + list("“”‘’«»„–—…•→✓\n\t\r")
# Letters that a word has, at least and at most, to be taken for a slip of another, and how many words of a text may be.
SLIP_LETTERS, SLIP_LETTERS_MAX, SLIP_WORDS = 4, 20, 384
# What stands beside a word that is quoted or a part of a name.
BINDING = "_-/@\\\"'`“”‘’«»„"
BLANKS = ["        ", "    ", "  ", " "]
NUMBERS = [str(number) for number in range(101)] + [f"0{number}" for number in range(10)]
CONTROL_TYPE, NORMAL, WORD, UNUSED = 3, 1, 4, 5


class Token(NamedTuple):
    """A token and its place in the text, in characters. Capital and glue take no place."""

    id: int
    begin: int
    end: int


def in_word(char):
    """Letters and digits, and whatever is written in other scripts; `_` is a sign."""
    code = ord(char)
    if code < 0x80:
        return char.isalnum()
    return code >= 0xc0 and code not in (0xd7, 0xf7) and not 0x2000 <= code < 0x2c00 and not 0x3000 <= code < 0x3005 \
        and not 0xfe00 <= code < 0xfe10 and code < 0x1f000


WORDS = re.compile("[0-9A-Za-z\xc0-\xd6\xd8-\xf6\xf8-\u1fff\u2c00-\u2fff\u3005-\ufdff\ufe10-\U0001efff]+")
TWO_PARTS = re.compile("([A-Za-z]+)([0-9]+)|([0-9]+)([A-Za-z]+)")


class Table:
    """Which slot stands for which word of one prompt. In training `order` shuffles them, so that each is learned, and `hidden` are
    known words that are taken for unknown. `slips`: what a person mistyped, and the known word that it is read as."""

    def __init__(self, order=None, hidden=frozenset(), slots=None, keeps=True):
        self.slots, self.keeps = slots or {kind: {} for kind in SLOTS}, keeps
        self.order, self.hidden = order, hidden
        self.slips, self.said = {}, set()
        self.ranks, self.texts = {}, 0

    def slot(self, kind, text, by_person):
        """A word that was not shown looks like all that has no slot of its own."""
        of, last = self.slots[kind], SLOTS[kind] - 1
        if self.keeps:
            # A person's words need a slot before any other, then those of the last texts.
            self.ranks[text] = max(self.ranks.get(text, (False, 0)), (by_person, self.texts))
            of.setdefault(text, len(of))
        nth = min(of.get(text, last), last)
        return self.order[kind][nth] if self.order else nth

    def fixed(self):
        """The same, but no word that it meets gets a slot for good."""
        made = Table(self.order, self.hidden, self.slots, keeps=False)
        made.slips = self.slips
        return made

    def ran_out(self):
        """The classes that have fewer slots than words."""
        return [kind for kind, count in SLOTS.items() if len(self.slots[kind]) > count]

    def shared(self):
        """The table with which the same is to be shown again where slots ran out: the last slot of such a class stands for all
        the words that need one least, each other for one word."""
        slots = dict(self.slots)
        for kind in self.ran_out():
            of, last = self.slots[kind], SLOTS[kind] - 1
            words = sorted(of, key=lambda word: (*(-part for part in self.ranks[word]), of[word]))
            slots[kind] = dict.fromkeys(words[last:], last) | {word: nth for nth, word in enumerate(sorted(words[:last], key=of.get))}
        return Table(self.order, self.hidden, slots)


class Tokenizer:
    """Texts to tokens. `tokens` and `types` go into the GGUF file as they are."""

    def __init__(self, words=None):
        words = words if words is not None else (HERE / "words.txt").read_text().split()
        slots = [f"<|{kind}{nth}|>" for kind, count in SLOTS.items() for nth in range(count)]
        control = CONTROL + [CAPITAL, CAPITALS, GLUE] + slots
        known = list(dict.fromkeys([*SIGNS, *BLANKS, *NUMBERS, *words]))
        self.tokens = control + grammar.tokens() + known
        self.types = [CONTROL_TYPE] * len(control) + [NORMAL] * len(grammar.tokens()) + [WORD] * len(known)
        unused = -len(self.tokens) % 32
        self.tokens += [f"<|unused{nth}|>" for nth in range(unused)]
        self.types += [UNUSED] * unused
        self.id = {token: nth for nth, token in enumerate(self.tokens)}
        assert len(self.id) == len(self.tokens), "a token stands twice"
        self.known = {token: nth for nth, (token, kind) in enumerate(zip(self.tokens, self.types)) if kind == WORD}
        self.first_slot = {kind: self.id[f"<|{kind}0|>"] for kind in SLOTS}
        self.capital, self.capitals, self.glue = self.id[CAPITAL], self.id[CAPITALS], self.id[GLUE]
        self.shared = {first + SLOTS[kind] - 1 for kind, first in self.first_slot.items()}
        self.blanks = {blank: self.known[blank] for blank in BLANKS}
        self.plain = {word for word in words if len(word) >= SLIP_LETTERS and word.isalpha() and word.islower()}

    def renumbered(self, part, parts):
        """All tokens, the slots of each class turned on by a part of their number: what another voice reads in their place."""
        ids = list(range(len(self.tokens)))
        for kind, count in SLOTS.items():
            first = self.first_slot[kind]
            for nth in range(count):
                ids[first + nth] = first + (nth + part * count // parts) % count
        return ids

    def slip(self, word):
        """The known word that a slip of the fingers made this of: two letters that changed places, one too many, one left out or
        one that is wrong, never the first. None where there is none, or where the likeliest slip may be of several words."""
        end, letters = len(word), [chr(code) for code in range(ord("a"), ord("z") + 1)]
        if not SLIP_LETTERS <= end <= SLIP_LETTERS_MAX:
            return None
        ways = [[word[:at] + word[at + 1] + word[at] + word[at + 2:] for at in range(1, end - 1)],
                [word[:at] + word[at + 1:] for at in range(1, end)],
                [word[:at] + letter + word[at:] for at in range(1, end + 1) for letter in letters],
                [word[:at] + letter + word[at + 1:] for at in range(1, end) for letter in letters] if end > SLIP_LETTERS else []]
        meant = next((found for way in ways if (found := self.plain.intersection(way))), ())
        return next(iter(meant)) if len(meant) == 1 else None

    def correct(self, text, table):
        """Notes which words of what a person says are slips. None is one that is quoted or a part of a name, and none is where
        the word that is meant was said too: who writes both means two words."""
        places = [found.span() for found in re.finditer("[A-Za-z]+", text)][:SLIP_WORDS]
        table.said.update(text[begin:end].lower() for begin, end in places)
        for nth, (begin, end) in enumerate(places):
            # A capital at the begin is the sentence's, any other a name's.
            word = text[begin:end].lower() if nth == 0 else text[begin:end]
            if word.islower() and word not in self.known and word not in table.slips and stands_alone(text, begin, end):
                meant = self.slip(word)
                if meant and not (meant in table.said or meant in table.hidden or meant in table.slips.values()):
                    table.slips[word] = meant

    def encode(self, text, table, most=None, by_person=False):
        """Tokens of a text with their places, at most so many; what is behind them gets no slot."""
        table.texts += 1
        found = self.pieces(text, table)[:most]
        for at, (kind, begin, end) in enumerate(found):
            if kind in SLOTS:
                found[at] = Token(self.first_slot[kind] + table.slot(kind, text[begin:end], by_person), begin, end)
        return found

    def pieces(self, text, table):
        """The same before slots are given: a class stands in the place of each."""
        found, at, end, behind_word = [], 0, len(text), False
        while at < end:
            char = text[at]
            if in_word(char):
                after = WORDS.match(text, at).end()
                if behind_word and found[-1].end == at:
                    found.append(Token(self.glue, at, at))
                self.word(text, at, after, table, found)
                at, behind_word = after, True
            elif char == " ":
                if behind_word and at + 1 < end and in_word(text[at + 1]):
                    at += 1
                    continue
                run = at
                while run < end and text[run] == " ":
                    run += 1
                for blank in BLANKS:
                    while run - at >= len(blank):
                        found.append(Token(self.blanks[blank], at, at + len(blank)))
                        at += len(blank)
                behind_word = False
            else:
                known = self.known.get(char)
                found.append(Token(known if known is not None else "sign", at, at + 1))
                at, behind_word = at + 1, False
        return found

    def word(self, text, begin, end, table, found):
        """A run of letters and digits: letters before digits, or digits before letters, are two words."""
        parts = TWO_PARTS.fullmatch(text, begin, end)
        if parts:
            middle = parts.end(1) if parts.group(1) else parts.end(3)
            self.part(text, begin, middle, table, found)
            found.append(Token(self.glue, middle, middle))
            self.part(text, middle, end, table, found)
        else:
            self.part(text, begin, end, table, found)

    def part(self, text, begin, end, table, found):
        word = text[begin:end]
        word = table.slips.get(word, word)
        known = self.known.get(word)
        if known is not None and word not in table.hidden:
            found.append(Token(known, begin, end))
            return
        kind = class_of(word)
        if kind in ("capital", "capitals"):
            small = table.slips.get(word.lower(), word.lower())
            known = self.known.get(small)
            if known is not None and small not in table.hidden:
                found.append(Token(self.capital if kind == "capital" else self.capitals, begin, begin))
                found.append(Token(known, begin, end))
                return
        found.append(Token(kind, begin, end))


def stands_alone(text, begin, end):
    """Whether a word is neither quoted nor a part of a name."""
    around = text[max(begin - 1, 0):begin] + text[end:end + 1]
    return not any(in_word(char) or char in BINDING for char in around) and not (text[end:end + 1] == "." and in_word(text[end + 1:end + 2] or " "))


def class_of(word):
    """The class of a word that is not known as it stands."""
    if not word.isascii():
        return "foreign"
    if word.isdigit():
        return "digits"
    if not word.isalpha():
        return "mixed"
    if word.islower():
        return "small"
    if word[0].isupper() and (word[1:].islower() or len(word) == 1):
        return "capital"
    return "capitals" if word.isupper() else "mixed"
