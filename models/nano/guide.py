"""Which tokens may come next in an answer, so that every answer is one call or one sentence made of what was shown.

Start at Guide.nexts. It reads the answer so far against the grammar, in every way that it can be read, and collects what each
of them would take next. What always holds: an answer that was made of such tokens decodes, and its spans stand in a source.
This is the reference of the Rust runtime's.
"""

import grammar
from answer import UNITS
from tokenizer import BLANKS, NUMBERS, in_word

# Signs that join the parts of a name.
JOINTS = "._-"
SPANS_MAX, ITEMS_MAX, FIELDS = 4, 6, 5


def splits(text, end):
    """Whether a span that ends here would end within a name: `notes.m`, `notes.` or `notes` of `notes.md`."""
    before, after = text[end - 1], text[end:end + 2]
    if after and in_word(after[0]):
        return in_word(before) or before in JOINTS + "/"
    return len(after) == 2 and after[0] in JOINTS and in_word(before) and in_word(after[1])


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
        self.half = {codec.tokenizer.capital, codec.tokenizer.capitals, codec.tokenizer.glue}
        first = codec.tokenizer.first_slot["digits"]
        self.plain = {known[number] for number in NUMBERS}
        self.numbers = self.plain | {nth for nth in self.starts if first <= nth < first + 64}
        # A process has a number that was told.
        self.pids = self.numbers & self.starts or self.numbers

    def nexts(self, ids):
        """The tokens that may follow these; none behind the end."""
        self.ids, self.found = ids, set()
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
            return self.span(at)
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
            behind = self.then(self.id["<|and|>"], self.span(at))
            return [*behind, *(end for place in behind for end in self.span(place))]
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

    def span(self, at):
        ids, end = self.ids, len(self.ids)
        if at == end:
            self.found |= self.starts
            return []
        if ids[at] in self.wholes:
            return [at + 1]
        places = [(source, nth) for source in self.codec.sources for nth, of in enumerate(source.ids) if of == ids[at]]
        ends = []
        while places:
            at += 1
            if ids[at - 1] not in self.half and not all(splits(source.text, source.tokens[nth].end) for source, nth in places):
                ends.append(at)
            places = [(source, nth + 1) for source, nth in places if nth + 1 < len(source.ids)]
            if at == end:
                self.found |= {source.ids[nth] for source, nth in places}
                break
            places = [(source, nth) for source, nth in places if source.ids[nth] == ids[at]]
        return ends

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
