"""Which tokens may come next in an answer, so that every answer is one call or one sentence made of what was shown.

Start at Guide.nexts. It reads the answer so far against the grammar, in every way that it can be read, and collects what each
of them would take next. What always holds: an answer that was made of such tokens decodes, and its spans stand in a source;
of what a person quoted a value is all or nothing, and nothing is said twice, where anything else may be said.
This is the reference of the Rust runtime's.
"""

from typing import NamedTuple

import grammar
from answer import UNITS
from tokenizer import BLANKS, NUMBERS, in_word

# Signs that join the parts of a name.
JOINTS = "._-"
SPANS_MAX, ITEMS_MAX, FIELDS = 4, 6, 5
# What a quotation begins with, and what it ends with.
QUOTATIONS = {'"': '"', "'": "'", "`": "`", "“": "”", "«": "»", "‘": "’", "„": "“"}


def splits(text, end):
    """Whether a span that ends here would end within a name: `notes.m`, `notes.` or `notes` of `notes.md`."""
    before, after = text[end - 1], text[end:end + 2]
    if after and in_word(after[0]):
        return in_word(before) or before in JOINTS + "/"
    return len(after) == 2 and after[0] in JOINTS and in_word(before) and in_word(after[1])


def quotations(text):
    """Where what is quoted begins and ends, without its marks and blanks before it. A mark behind a letter begins nothing, and one
    before a letter ends nothing: such are apostrophes. Of a text that is one quotation every part may be meant."""
    found, at = [], 0
    while at < len(text):
        end = -1
        if text[at] in QUOTATIONS and not (at and in_word(text[at - 1])):
            end = text.find(QUOTATIONS[text[at]], at + 1)
            while end >= 0 and end + 1 < len(text) and in_word(text[end + 1]):
                end = text.find(QUOTATIONS[text[at]], end + 1)
        begin = end - len(text[at + 1:end].lstrip(" "))
        if at < begin < end and (at, end) != (0, len(text) - 1):
            found.append((begin, end))
        at = max(at, end) + 1
    return found


def quoted(source):
    """For each token of what a person said the first and the last of the quotation in which it stands; None where in none."""
    found = [None] * len(source.ids)
    for begin, end in quotations(source.text) if source.steers is True else []:
        within = [nth for nth, token in enumerate(source.tokens) if begin <= token.begin and token.end <= end]
        for nth in within:
            found[nth] = (within[0], within[-1])
    return found


class Place(NamedTuple):
    """A token of the source of this number, `at`, in a span that began with the token `begin`."""

    source: int
    begin: int
    at: int


class Guide:
    """The answers that may follow a prompt. Calls that are not offered may begin one: see Guide.instead."""

    def __init__(self, codec, tools):
        self.codec, self.tools, self.id = codec, tools, codec.id
        known = codec.tokenizer.known
        # No span begins with white space, so none is white space alone.
        blank = {known[text] for text in [*BLANKS, "\n", "\t", "\r"]}
        self.starts = {nth for source in codec.sources for nth in source.ids} - blank
        self.starts |= {self.id[f"<|whole{nth}|>"] for nth in range(1, len(codec.results) + 1)}
        self.wholes = {self.id[f"<|whole{nth}|>"] for nth in range(1, 5)}
        self.quoted = [quoted(source) for source in codec.sources]
        # What stands before and behind a span, and the literal of a path whose second part is one of the first path.
        self.marks = {nth for token, nth in self.id.items() if token in ("<|and|>", "<|say|>") or token.startswith((grammar.FIELD_MARK, grammar.LITERAL_MARK, grammar.SAID_MARK))}
        self.into = self.id[grammar.literal("{}/{}")]
        self.half = {codec.tokenizer.capital, codec.tokenizer.capitals, codec.tokenizer.glue}
        first = codec.tokenizer.first_slot["digits"]
        self.plain = {known[number] for number in NUMBERS}
        self.numbers = self.plain | {nth for nth in self.starts if first <= nth < first + 64}
        # A process has a number that was told.
        self.pids = self.numbers & self.starts or self.numbers

    def nexts(self, ids):
        """The tokens that may follow these; none behind the end."""
        return self.read(ids, True) or self.read(ids, False)

    def read(self, ids, sparing):
        """The same, or any that the grammar has: not `sparing`, quotations may be cut and spans be said twice."""
        self.ids, self.found, self.sparing = ids, set(), sparing
        self.begun = max([nth + 1 for nth, of in enumerate(ids) if of in self.marks], default=0)
        self.taken = self.places_taken() if sparing else set()
        end = self.id["<|end|>"]
        for name, shapes in grammar.CALLS.items():
            for at in self.token(self.id[name], 0):
                for shape in shapes:
                    self.then(end, self.fields(shape, at))
        for template in grammar.SAY:
            for at in self.token(self.id[grammar.said(template)], 0):
                self.then(end, self.spans(at, template.count("{}")))
        for at in self.token(self.id["<|say|>"], 0):
            for count in range(1, SPANS_MAX + 1):
                self.then(end, self.spans(at, count))
        return self.found

    def places_taken(self):
        """Each token, with its source's number, of the spans before the last one that stand once. The name of a file that goes into
        a folder is a part of its path, and taken twice."""
        taken, span = set(), []
        for nth in self.ids if self.into not in self.ids else []:
            if nth not in self.marks:
                span.append(nth)
                continue
            places = [(number, at) for number, source in enumerate(self.codec.sources) for at in (source.spans(span) if span else [])]
            if len(places) == 1:
                (number, at), = places
                taken |= {(number, at + nth) for nth in range(len(span))}
            span = []
        return taken

    def instead(self, first):
        """The sentence in the place of a call that is not offered; None where it may be made."""
        name = self.codec.tokenizer.tokens[first]
        return grammar.say(grammar.LACK.format(name)) if name in grammar.CALLS and name not in self.tools else None

    # Each takes a place in the answer and gives the places where what it reads may end

    def token(self, nth, at):
        if at == len(self.ids):
            self.found.add(nth)
            return []
        return [at + 1] if self.ids[at] == nth else []

    def any(self, nths, at):
        if at == len(self.ids):
            self.found |= nths
            return []
        return [at + 1] if self.ids[at] in nths else []

    def then(self, nth, places):
        return [after for at in places for after in self.token(nth, at)]

    def fields(self, shape, at):
        places = {at}
        for field, kind in shape:
            behind = self.then(self.id[grammar.field(field)], places)
            places = {end for place in behind for end in self.value(kind, place)}
        return places

    def value(self, kind, at):
        if kind in (grammar.COPY, grammar.LINE):
            return self.span(at, True)
        if kind == grammar.INT:
            return self.any(self.numbers, at)
        if kind == grammar.PID:
            return self.any(self.pids, at)
        if kind == grammar.DURATION:
            once = self.duration([at])
            return [*once, *self.duration(once)]
        if kind == grammar.CRON:
            return self.cron(at)
        if kind == grammar.TRUE:
            return [at]
        if kind == grammar.EDITS:
            behind = self.then(self.id["<|and|>"], self.span(at, True))
            return [*behind, *(end for place in behind for end in self.span(place, True))]
        if kind[0] == "list":
            items, places, ends = {self.id[item] for item in kind[1]}, [at], []
            for _ in range(ITEMS_MAX):
                places = [after for place in places for after in self.any(items, place)]
                ends += places
            return ends
        return [end for template in kind for place in self.token(self.id[grammar.literal(template)], at)
                for end in self.spans(place, template.count("{}"))]

    def spans(self, at, count):
        places = [at]
        for nth in range(count):
            behind = places if nth == 0 else self.then(self.id["<|and|>"], places)
            places = {end for place in behind for end in self.span(place)}
        return places

    def span(self, at, value=False):
        """A text of a source. As a value, and no part of a literal, it is all of a quotation or none of it."""
        ids, sources = self.ids, self.codec.sources
        value, taken = value and self.sparing, self.taken if at == self.begun else set()
        places = [Place(number, nth, nth) for number, source in enumerate(sources) for nth in range(len(source.ids))
                  if (number, nth) not in taken and not (value and self.quoted[number][nth] and self.quoted[number][nth][0] != nth)]
        if at == len(ids):
            self.found |= self.starts & {sources[place.source].ids[place.at] for place in places}
            self.found |= self.starts & self.wholes - set(ids if self.sparing else [])
            return []
        if ids[at] in self.wholes:
            return [at + 1]
        ends = []
        while at < len(ids):
            places = [place for place in places if sources[place.source].ids[place.at] == ids[at]]
            at += 1
            if ids[at - 1] not in self.half and any(self.may_end(place, value) for place in places):
                ends.append(at)
            places = [Place(number, begin, nth + 1) for number, begin, nth in places if nth + 1 < len(sources[number].ids) and (number, nth + 1) not in taken
                      and not (value and self.quoted[number][nth] == (begin, nth))]
        self.found |= {sources[place.source].ids[place.at] for place in places}
        return ends

    def may_end(self, place, value):
        source, within = self.codec.sources[place.source], self.quoted[place.source][place.at]
        return not splits(source.text, source.tokens[place.at].end) and not (value and within and within != (place.begin, place.at))

    def duration(self, places):
        units = {self.id[f"<|{unit}|>"] for unit in UNITS}
        return [end for at in places for behind in self.any(self.numbers, at) for end in self.any(units, behind)]

    def cron(self, at):
        """Five fields. Between two there is a blank, which is taken for granted between two numbers."""
        known, places = self.codec.tokenizer.known, {at}
        for nth in range(FIELDS):
            behind = [after for place in places for after in self.gap(place, known[" "])] if nth else places
            places = {end for place in behind for end in self.row(place)}
        return places

    def gap(self, at, blank):
        """Where the next field of a cron line begins."""
        if self.ids[at - 1] in self.plain and (at == len(self.ids) or self.ids[at] in self.plain):
            # A number next: it comes without a blank.
            self.any(self.plain, at)
            found = [at] if at < len(self.ids) else []
            return found + self.token(blank, at)
        return self.token(blank, at)

    def row(self, at):
        """One field: `*`, numbers, ranges and steps, joined by commas."""
        known, ends, places = self.codec.tokenizer.known, set(), [at]
        for _ in range(ITEMS_MAX):
            base = [after for place in places for after in [*self.any(self.plain, place), *self.token(known["*"], place)]]
            other = [after for place in base for mark in ("-", "/") for behind in self.token(known[mark], place) for after in self.any(self.plain, behind)]
            places = [after for place in [*base, *other] for after in self.token(known[","], place)]
            ends |= {*base, *other}
        return ends
