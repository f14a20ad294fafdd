"""Answers as tokens: what a reply says, as choices and spans of what was shown, and back.

Start at encode. A reply is one call (its token, then each field's token with its value) or one sentence, then `<|end|>`. A value
is a choice among literals, a number, or spans; a span is the tokens of a source, or `<|wholeN|>`, the whole of the Nth last
result. The runtime writes the JSON from it, so the model never does. What always holds: decode(encode(reply)) is the reply.
This is the reference of the Rust runtime; vectors/prompts.jsonl binds both.
"""

import json

import grammar

UNITS = {"w": 604800, "d": 86400, "h": 3600, "min": 60, "s": 1}
WHOLES = 4
# What stands before the number of a new process.
PID_MARK = "pid "


class Source:
    """A text of the prompt that may be copied from. `result`: what a call brought, its error included. `steers`: how far it may
    say what a call is about: wholly what a person said, names where lines begin (`"names"`), no further what was read."""

    def __init__(self, text, tokens, result, steers=True):
        self.text, self.tokens, self.result, self.steers = text, tokens, result, steers
        self.ids = [token.id for token in tokens]

    def spans(self, ids):
        """Each place where these tokens stand."""
        first, count = ids[0], len(ids)
        return [at for at in range(len(self.ids) - count + 1) if self.ids[at] == first and self.ids[at:at + count] == ids]

    def cut(self, begin, count):
        """The text of some tokens."""
        return self.text[self.tokens[begin].begin:self.tokens[begin + count - 1].end]

    def names(self, text, ids):
        """Whether this text, of these tokens, stands where this source may say what a call is about."""
        if not self.steers:
            return False
        before = (self.text[:self.tokens[at].begin].rpartition("\n")[2] for at in self.spans(ids) if self.cut(at, len(ids)) == text)
        return any(self.steers is True or text in ("", PID_MARK) for text in before)


class NotShown(ValueError):
    """A value that is no span of what was shown."""


class Codec:
    """Replies and tokens, given what was shown before. `strict`: a value that nothing shows is refused, as training wants it.
    `unsure`: shared slots in replies of before, where they may stand for what is shown no longer."""

    def __init__(self, tokenizer, table, sources, strict=True, unsure=frozenset()):
        self.tokenizer, self.table, self.sources, self.strict = tokenizer, table.fixed(), sources, strict
        self.results = [source for source in reversed(sources) if source.result][:WHOLES]
        self.id, self.unsure = tokenizer.id, unsure

    def instead(self, ids):
        """The reply in the place of an answer of which it is not certain what it names, or of a call that something read would
        steer; None where each name, path, address and task in it was said by a person, or stands where a list names it."""
        try:
            self.decode(ids)
        except ValueError:
            return grammar.say(grammar.UNSURE)
        if all(source.steers is True for source in self.sources) or self.is_asked(ids):
            return None
        return grammar.say(self.sources[-1].text if self.sources[-1].result else grammar.NOTED)

    def is_asked(self, ids):
        tokens = self.tokenizer.tokens
        if tokens[ids[0]] not in grammar.CALLS:
            return True
        kinds = {field: kind for shape in grammar.CALLS[tokens[ids[0]]] for field, kind in shape}
        for field, value in fields([(nth, tokens[nth]) for nth in ids[1:-1]]):
            kind = kinds[field]
            template = isinstance(kind, list) and kind[0] != "list"
            if field in grammar.CONTENTS or not (template or kind in (grammar.COPY, grammar.PID)):
                continue
            spans = split(value[1:] if template else value)
            # A count in a command steers nothing.
            spans = [span for span in spans if span and (kind == grammar.PID or not (len(span) == 1 and span[0][1].isdigit()))]
            if not all(map(self.is_said, spans)):
                return False
        return True

    def is_said(self, span):
        name = span[0][1]
        if name.startswith("<|whole"):
            return bool(self.results[int(name[7]) - 1].steers)
        text = self.text(span)
        return any(source.names(text, [nth for nth, _ in span]) for source in self.sources)

    # From a reply to tokens

    def encode(self, reply):
        """Tokens of a reply's JSON, `<|end|>` included."""
        reply = json.loads(reply)
        if "say" in reply:
            return [*self.sentence(reply["say"]), self.id["<|end|>"]]
        (made,) = reply["calls"]
        ids, args = [self.id[made["name"]]], made["args"]
        for field, kind in grammar.shape_of(made["name"], args):
            ids.append(self.id[grammar.field(field)])
            ids += self.value(kind, args[field])
        return [*ids, self.id["<|end|>"]]

    def sentence(self, text):
        for template in grammar.SAY:
            if "{}" not in template and template == text:
                return [self.id[grammar.said(template)]]
        for template in grammar.SAY:
            if "{}" in template:
                spans = self.filled(template, text)
                if spans is not None:
                    return [self.id[grammar.said(template)], *spans]
        return [self.id["<|say|>"], *self.lines(text)]

    def lines(self, text):
        """A text made of spans with a line feed between each and the next, as few of them as may be."""
        whole = self.span(text)
        if whole is not None:
            return whole
        rows = text.split("\n")
        for cut in range(len(rows) - 1, 0, -1):
            first = self.span("\n".join(rows[:cut]))
            if first is not None:
                return [*first, self.id["<|and|>"], *self.lines("\n".join(rows[cut:]))]
        return self.copied(text)

    def value(self, kind, value):
        if kind == grammar.COPY:
            return self.copied(value)
        if kind == grammar.LINE:
            return self.span(value.removesuffix("\n")) or self.copied(value)
        if kind in (grammar.INT, grammar.PID):
            return self.span(str(value)) or self.number(value)
        if kind == grammar.DURATION:
            return self.duration(value)
        if kind == grammar.CRON:
            return self.plain(value)
        if kind == grammar.TRUE:
            return []
        if kind == grammar.EDITS:
            (edit,) = value
            return [*self.copied(edit["old"]), self.id["<|and|>"], *(self.copied(edit["new"]) if edit["new"] else [])]
        if kind[0] == "list":
            return [self.id[item] for item in value]
        for template in kind:
            spans = self.filled(template, value)
            if spans is not None:
                return [self.id[grammar.literal(template)], *spans]
        raise NotShown(f"no template makes {value!r}")

    def number(self, value):
        if self.strict and str(value) not in self.tokenizer.known:
            raise NotShown(f"the number {value} stands nowhere")
        return self.plain(str(value))

    def duration(self, seconds):
        """As it was said: the count that stands before a word with the unit's letter; else the largest unit that goes."""
        fitting = [(seconds // size, unit) for unit, size in UNITS.items() if seconds % size == 0]
        said = [(count, unit) for count, unit in fitting if any(self.said(source, str(count), unit[0]) for source in self.sources)]
        known = [(count, unit) for count, unit in fitting if str(count) in self.tokenizer.known]
        count, unit = (said or known or [(seconds, "s")])[0]
        ids = self.plain(str(count))
        if self.strict and not known and not any(ids[0] in source.ids for source in self.sources):
            raise NotShown(f"{seconds} seconds stand nowhere")
        return [*ids, self.id[f"<|{unit}|>"]]

    def said(self, source, count, letter):
        """Whether this number stands there with a word behind it that begins with this letter."""
        numbers = [token for token in source.tokens[:-1] if source.text[token.begin:token.end] == count]
        return any(source.text[token.end:token.end + 3].lstrip(" -").lower().startswith(letter) for token in numbers)

    def filled(self, template, value):
        """Tokens of the spans with which a template makes a value; None where it does not."""
        parts = template.split("{}")
        if len(parts) == 1:
            return [] if value == template else None
        if not value.startswith(parts[0]):
            return None
        return self.rest(parts[1:], value[len(parts[0]):])

    def rest(self, parts, value):
        ends = [len(value) - len(parts[0])] if len(parts) == 1 else places(value, parts[0])
        for end in ends:
            if end <= 0 or not value.startswith(parts[0], end):
                continue
            span = self.span(value[:end])
            if span is None:
                continue
            if len(parts) == 1:
                return span
            others = self.rest(parts[1:], value[end + len(parts[0]):])
            if others is not None:
                return [*span, self.id["<|and|>"], *others]
        return None

    def span(self, value):
        """Tokens of a text that stands in what was shown; None where it does not."""
        for nth, source in enumerate(self.results, 1):
            if source.text == value:
                return [self.id[f"<|whole{nth}|>"]]
        ids = self.plain(value)
        return ids if ids and any(source.cut(at, len(ids)) == value for source in self.sources for at in source.spans(ids)) else None

    def copied(self, value):
        """A span; what another model said, or a person's hand made of it, stands as it is."""
        ids = self.span(value)
        if ids is None and self.strict:
            raise NotShown(f"{value!r} is no span")
        return ids or self.plain(value)

    def plain(self, value):
        return [token.id for token in self.tokenizer.encode(value, self.table)]

    # From tokens to a reply

    def decode(self, ids):
        """The reply that tokens mean; ValueError where they mean none."""
        names = [self.tokenizer.tokens[nth] for nth in ids]
        if not names or names[-1] != "<|end|>":
            raise ValueError("it does not end")
        head, body = names[0], list(zip(ids, names))[1:-1]
        if head == "<|say|>":
            return grammar.say("\n".join(self.text(span) for span in split(body)))
        if head.startswith(grammar.SAID_MARK):
            return grammar.say(self.filled_in(head[2:], body))
        if head not in grammar.CALLS:
            raise ValueError(f"a reply cannot begin with {head}")
        found = fields(body)
        for shape in grammar.CALLS[head]:
            if [field for field, _ in shape] == [field for field, _ in found]:
                try:
                    args = {field: self.meant(kind, value) for (field, kind), (_, value) in zip(shape, found)}
                    return grammar.call(head, args)
                except (ValueError, IndexError):
                    continue
        raise ValueError("no shape of the call fits")

    def meant(self, kind, value):
        if kind == grammar.COPY:
            return self.text(value)
        if kind == grammar.LINE:
            text = self.text(value)
            return text if text.endswith("\n") else text + "\n"
        if kind in (grammar.INT, grammar.PID):
            return int(self.text(value))
        if kind == grammar.DURATION:
            return sum(int(self.text([count])) * UNITS[unit[1].strip("<|>")] for count, unit in zip(value[::2], value[1::2]))
        if kind == grammar.CRON:
            return spelled([name for _, name in value])
        if kind == grammar.TRUE:
            return True
        if kind == grammar.EDITS:
            old, *new = split(value)
            return [{"old": self.text(old), "new": self.text(new[0]) if new and new[0] else ""}]
        if kind[0] == "list":
            return [name for _, name in value]
        template = value[0][1][2:]
        if template not in kind:
            raise ValueError("no literal of this field")
        return self.filled_in(template, value[1:])

    def filled_in(self, template, value):
        """A template with its spans."""
        spans = [self.text(span) for span in split(value)] if value else []
        parts = template.split("{}")
        if len(parts) != len(spans) + 1:
            raise ValueError("as many spans as the template has places")
        return parts[0] + "".join(span + part for span, part in zip(spans, parts[1:]))

    def text(self, span):
        """The text of a span: of a whole result, or the one that stands wherever its tokens do, which is never behind a mark of
        capitals where there is another place. Where there are several, the one that a person said last."""
        if len(span) == 1 and span[0][1].startswith("<|whole"):
            return self.results[int(span[0][1][7]) - 1].text
        ids = [nth for nth, _ in span]
        if self.unsure.intersection(ids):
            raise ValueError("a span of an earlier reply's words, which may be shown no longer")
        found = [(source, source.cut(at, len(ids))) for source in self.sources for at in source.spans(ids)] if ids else []
        found = [(source, text) for source, text in found if self.plain(text) == ids] or found
        if len({text for _, text in found}) > 1:
            # Nobody knows whose a shared slot is here.
            said = [] if self.tokenizer.shared.intersection(ids) else [source for source, _ in found if source.steers is True]
            found = [(source, text) for source, text in found if said and source is said[-1]]
            if len({text for _, text in found}) != 1:
                raise ValueError("a span that may mean several texts")
        if found:
            return found[0][1]
        if len(span) == 1 and span[0][1].isdigit():
            return span[0][1]
        raise ValueError("a span that stands nowhere")


def spelled(names):
    """The text of tokens that are known words and signs: a blank between two words."""
    text = ""
    for name in names:
        text += (" " if text and text[-1].isalnum() and name.isalnum() else "") + name
    return text


def places(text, part):
    """Each place of a part in a text."""
    at = text.find(part, 1)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)


def fields(body):
    """What follows the token of a call: each field's name with the ids and names of its value's tokens."""
    found = []
    for nth, name in body:
        if name.startswith(grammar.FIELD_MARK):
            found.append((name[len(grammar.FIELD_MARK):], []))
        else:
            found[-1][1].append((nth, name))
    return found


def split(value):
    """Spans with `<|and|>` between them."""
    spans = [[]]
    for nth, name in value:
        if name == "<|and|>":
            spans.append([])
        else:
            spans[-1].append((nth, name))
    return spans
