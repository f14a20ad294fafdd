"""An episode: what a process was told, and what it should answer, turn by turn until it is done.

Start at Episodes.make. What always holds: the first failure ends the episode, except where the request says what to do
then; a request that needs a call which is not offered is refused before anything is done; what lies outside is refused
in words, without a call.
"""

import re
from dataclasses import dataclass

import grammar
from clause import Clause, Move
from intents import line
from wording import QUOTE_MARKS, SENTENCE
from values import CITIES, LANGUAGES, UNITS

TIME = "2026-11-22T09:00:00.000Z"
CONNECTIVES = [" and ", " and then ", ", then ", ". Then ", "; then ", ", and then ", ", and ", ". After that, ", " and after that ",
               ". Next, ", ", afterwards ", "; ", ". ", ", after that ", ". Afterwards ", " before you ", ". Also ", ", next ", " & ",
               ", finally ", ". Finally, ", " and finally ", "; after that ", ". Once that is done, ", ", and when that is done ", "\n", ".\n", ", "]
OUTSIDE = {"create": 6, "code": 5, "text": 8, "maths": 4, "know": 9, "world": 10, "vague": 4}
# Slots of free texts.
FREE = {"content", "body", "value", "todo", "text", "old", "new", "job", "cmd", "key"}
# How often a lesson comes, where all other kinds together come about a hundred times.
LESSONS = 50


@dataclass
class Episode:
    """`messages` as in a Prompt, each assistant message one that should be answered so. `kind` for the reports."""

    kind: str
    tools: list
    messages: list
    clauses: list
    request: str
    files: dict


class Episodes:
    """Makes episodes; everything follows from the random source of the intents."""

    def __init__(self, intents, lessons=None):
        self.i, self.w, self.v, self.rng = intents, intents.w, intents.v, intents.rng
        self.lessons = lessons

    def make(self, kind=None):
        """An episode of a kind, or of any in the proportions of training."""
        kind = kind or self.rng.choices(["one", "two", "three", "four", "chain", "chain_more", "plan", "outside", "lack", "talk", "fallback", "later", "told", "again", "several", "found", "unmeant", "lesson"],
                                        [40, 7, 16, 3, 7, 9, 12, 14, 3, 1.5, 2.5, 4, 1, 4, 4, 3, 10, LESSONS])[0]
        return getattr(self, kind)()

    def lesson(self):
        """A whole task as it was written by hand."""
        request, clauses = self.lessons.make(self.rng, self.v)
        return self.told_to(request, clauses, "lesson")

    # One clause

    def one(self, name=None, faulty=True):
        clause = self.i.make(name, faulty)
        return self.told_to(self.w.sentence(clause.text, clause.ask, clause.tail), [clause], "one")

    # Several clauses

    def joined(self, texts):
        """Clauses as one request: connected, or numbered."""
        rng = self.rng
        kind = rng.random()
        if kind < .1:
            marks = rng.choice([["1. ", "2. ", "3. ", "4. ", "5. "], ["1) ", "2) ", "3) ", "4) ", "5) "], ["- "] * 5, ["* "] * 5])
            head = rng.choice(["", "", "Do the following:\n", "please do this:\n", "Steps:\n", "todo:\n", "three things:\n" if len(texts) == 3 else ""])
            return head + rng.choice(["\n", "\n", " "]).join(mark + text for mark, text in zip(marks, texts))
        if kind < .22:
            firsts = rng.choice(["first ", "first, ", "First ", "First, ", "first of all, ", "start: "])
            return firsts + texts[0] + "".join(
                rng.choice([", then ", " and then ", ". Then ", "; then ", ", after that "] if nth < len(texts) - 2 else
                           [", finally ", " and finally ", ". Finally, ", ", then ", ". Then ", ", and last "]) + text
                for nth, text in enumerate(texts[1:]))
        result = texts[0]
        for text in texts[1:]:
            joint = rng.choice(CONNECTIVES)
            if joint == " before you " and len(texts) > 2:
                joint = ", then "
            result += joint + text
        return result

    def steps(self, count):
        """Clauses that do not need each other. A question or an exit can only stand last."""
        clauses, total = [], 0
        while len(clauses) < count:
            clause = self.i.make(faulty=self.rng.random() < .3)
            last = len(clauses) == count - 1
            unfit = clause.ask or clause.said is None or "\n" in clause.text or len(clause.text) > 160
            joins = any(joint in clause.text.lower() for joint in (" then ", ", then", "; ")) or (clause.tail and " and " in clause.text)
            if (unfit and not (last and clause.said is None)) or joins or clause.intent in ("say",):
                continue
            if clause.tail and not last and self.rng.random() < .6:
                continue
            clauses.append(clause)
        return clauses

    def sequence(self, count, kind):
        clauses = self.steps(count)
        text = self.joined([clause.text for clause in clauses])
        return self.told_to(self.w.sentence(text, False, clauses[-1].tail), clauses, kind)

    def two(self):
        return self.sequence(2, "two")

    def three(self):
        return self.sequence(3, "three")

    def four(self):
        return self.sequence(4, "four")

    # A step whose result the next one uses

    SOURCES = {"read": 6, "run": 4, "fetch": 3, "recall": 3, "list_root": 1, "list_glob": 1, "search": 2, "receive": 1.5, "wait": 1, "fact": 4, "ask": 2}
    SINKS = {"write": 6, "append": 2, "send": 4, "remember": 3, "print": 1, "exit": 1}

    def source(self):
        """A clause with a product, in the imperative."""
        for _ in range(200):
            name = self.rng.choices(list(self.SOURCES), list(self.SOURCES.values()))[0]
            clause = self.i.read(0.) if name == "read" else self.i.make(name, True)
            clause.intent = {"list_root": "list", "list_glob": "list"}.get(name, name)
            if clause.ask or "\n" in clause.text or (clause.tail and self.rng.random() < .5):
                continue
            if clause.failed or clause.product or self.rng.random() < .15:
                return clause
        raise AssertionError("no source in 200 tries")

    def sink(self, source, name=None):
        """What is done with the product: a clause that says `it`."""
        name = name or self.rng.choices(list(self.SINKS), list(self.SINKS.values()))[0]
        it = self.w.phrases.pick(f"it.{source.intent if source.intent in ITS else 'read'}.say", self.rng)
        path, shown = self.i.path()
        who, key = self.v.who(), self.v.key()
        text, _ = self.w.fill(f"sink.{name}.do", it=it, path=shown, who=who, key=key)
        return self.used(name, text, source.product, path, who, key)

    def used(self, name, text, product, path, who, key):
        """The clause of a sink, given its wording."""
        if product is None:
            return Clause(text, [], name)
        call, args, results = {
            "write": ("FS_WRITE", {"path": path, "content": line(product)}, {"bytes": len(product)}),
            "append": ("FS_WRITE", {"path": path, "content": line(product), "mode": "append"}, {"bytes": len(product)}),
            "send": ("SEND_MSG", {"to": who, "content": product}, {"message_id": "m4"}),
            "remember": ("MEM_WRITE", {"key": key, "value": product}, {"id": "m9"}),
            "print": ("SYS_WRITE_STDOUT", {"text": line(product)}, {}),
            "exit": ("SYS_EXIT", {"code": 0, "result": product}, {}),
        }[name]
        clause = self.i.act(name, call, args, (text, False, False), **results)
        if name == "exit":
            clause.said = None
        return clause

    def chain(self, more=0):
        if self.rng.random() < .4 and not more:
            return self.combined()
        source = self.source()
        clauses = [source]
        self.i.faulty = self.rng.random() < .3
        for nth in range(1 + min(more, 1)):
            sink = self.sink(source, None if nth == more or not more else self.rng.choice(["write", "send", "remember", "append"]))
            clauses.append(sink)
        if more and self.rng.random() < .5:
            clauses.pop()
        while len(clauses) < 2 + more:
            extra = self.steps(1)[0]
            if extra.said is None or (extra.tail and self.rng.random() < .7):
                continue
            place = self.rng.choice([0, len(clauses)]) if clauses[-1].said is not None else 0
            clauses.insert(place, extra)
        source.informs = False
        text = self.joined([clause.text for clause in clauses])
        return self.told_to(self.w.sentence(text, False, clauses[-1].tail), clauses, "chain" if not more else "chain_more")

    def chain_more(self):
        return self.chain(1)

    def combined(self):
        """Source and sink in one clause: "save the output of ls to a.txt"."""
        name = self.rng.choice([section for section in self.w.phrases.lines if section.startswith("combo.")])
        _, kind, sink, _ = name.split(".")
        for _ in range(200):
            source = self.i.read(0.) if kind == "read" else self.i.make({"list": "list_root"}.get(kind, kind), True)
            if source.product or source.failed or self.rng.random() < .3:
                break
        move = source.moves[0]
        (path, shown), who, key = self.i.path(), self.v.who(), self.v.key()
        place = move.args.get("path", "")
        clean = self.v.clean_command()
        text, _ = self.w.fill(name, **{
            "from": self.w.maybe(place) if place else "", "to": shown, "path": shown if kind not in ("read", "fact") or sink == "write" else self.w.maybe(place),
            "who": who, "key": key if kind not in ("recall", "fact") else "\1", "cmd": self.w.maybe(clean), "url": move.args.get("url", ""),
            "text": self.w.quoted(move.args.get("pattern", "x")), "name": key})
        if kind == "run":
            move.args["cmd"] = clean
        if kind == "recall":
            text = text.replace("\1", move.args["query"])
        if kind == "fact":
            asked = self.asked_key(source)
            if asked is None:
                return self.combined()
            text = text.replace("\1", asked)
        source.informs = False
        self.i.faulty = self.rng.random() < .3
        sink_clause = self.used(sink, "", source.product, path, who, key)
        source.text = text
        return self.told_to(self.w.sentence(text), [source, sink_clause], "chain")

    def asked_key(self, source):
        """The key whose value a fact's product is; None where the file has it in a form that cannot be told."""
        if source.product is None or source.failed:
            return None
        for row in source.moves[0].outcome["result"]["content"].split("\n"):
            for mark in (": ", " = ", "="):
                key, found, value = row.partition(mark)
                if found and value == source.product and key and not key.startswith(("-", "[", "The ", '"')):
                    return key
        return None

    # "It" as a file, and one thing done to several

    def again(self):
        """Something is done to a file, and then to "it"."""
        i, rng = self.i, self.rng
        i.faulty = rng.random() < .2
        first = getattr(i, rng.choice(["write", "write", "write", "append", "edit", "empty", "read", "read"]))()
        while "\n" in first.text or (first.tail and rng.random() < .6):
            first = i.write()
        path = first.moves[0].args["path"]
        clauses = [first]
        for nth in range(rng.choice([1, 1, 1, 2])):
            kind = rng.choice(["read", "read", "read", "delete", "append", "edit", "move", "copy", "sink"])
            if nth and clauses[-1].intent == "delete":
                break
            clause, path = self.to_it(kind, path)
            clauses.append(clause)
        request = self.w.sentence(self.joined([clause.text for clause in clauses]), False, clauses[-1].tail)
        return self.told_to(request, clauses, "again")

    def to_it(self, kind, path):
        """Something done to the file that is "it", and where that file is afterwards."""
        i, rng, spaced = self.i, self.rng, " " in path
        kind = "append" if kind == "copy" and spaced else kind
        content, (shown, bare) = i.content()
        if bare and rng.random() < .6:
            shown, bare = self.w.quoted(content), False
        (old, new), to, who = self.v.replaced(), self.v.path(), self.v.who()
        text, end = self.w.fill(f"again.{kind}.do", content=shown, old=self.w.quoted(old), new=self.w.quoted(new), to=self.w.maybe(to), who=who)
        if kind in ("read", "sink"):
            clause = i.inform("read", "FS_READ", {"path": path}, (text, False, False), grammar.EMPTY, **i.file_result(i.file_text() or "x"))
            if kind == "sink":
                clause.informs = False
                if not clause.failed:
                    clause.moves += self.used("send", "", clause.product, path, who, "").moves
            return clause, path
        name, args = {"delete": ("FS_DELETE", {"path": path}), "append": ("FS_WRITE", {"path": path, "content": line(content), "mode": "append"}),
                      "edit": ("FS_EDIT", {"path": path, "edits": [{"old": old, "new": new}]}), "move": ("FS_MOVE", {"from": path, "to": to}),
                      "copy": ("EXEC_CMD", {"cmd": f"cp {path} {to}"})}[kind]
        results = {"stdout": "", "stderr": "", "exit_code": 0, "changed": []} if kind == "copy" else {}
        clause = i.act(kind, name, args, (text, False, bare if end and end[0] == "content" else False), **results)
        clause.intent = kind
        return clause, to if kind == "move" else path

    def found(self):
        """The file that has a text in it, and what is done with that file."""
        i, rng = self.i, self.rng
        i.faulty = rng.random() < .2
        kind = rng.choice(["read", "read", "read", "delete", "delete", "append", "move", "send"])
        text, worded = i.sought()
        shown, to, who = worded[0], self.v.path(), self.v.who()
        content, (told, bare) = i.content()
        told = self.w.quoted(content) if bare else told
        worded, _ = self.w.fill(f"found.{kind}.do", text=shown, content=told, to=self.w.maybe(to), who=who)
        hits = i.matches(text)
        hits["matches"] = hits["matches"][:1]
        search = i.inform("search", "FS_SEARCH", {"pattern": text}, ("", False, False), grammar.NOT_FOUND, **hits)
        if not hits["matches"] or search.failed:
            return self.told_to(self.w.sentence(worded), [search], "found")
        path = hits["matches"][0]["path"]
        search.informs = False
        now = i.file_text() or "x"
        if kind in ("read", "send"):
            clause = i.inform("read", "FS_READ", {"path": path}, ("", False, False), grammar.EMPTY, **i.file_result(now))
            if kind == "send" and not clause.failed:
                clause.informs = False
                clause.moves += self.used("send", "", clause.product, path, who, "").moves
        else:
            name, args = {"delete": ("FS_DELETE", {"path": path}), "append": ("FS_WRITE", {"path": path, "content": line(content), "mode": "append"}),
                          "move": ("FS_MOVE", {"from": path, "to": to})}[kind]
            clause = i.act(kind, name, args, ("", False, False))
        return self.told_to(self.w.sentence(worded), [search, clause], "found")

    # Several steps in one wording

    def plan(self):
        """A wording of several steps: its section names them, and its slots carry their numbers."""
        i, rng = self.i, self.rng
        section = rng.choice([name for name in self.w.phrases.lines if name.startswith("plan.")])
        wording = self.w.mistyped(self.w.pick(section))
        clauses, slots, source, it = [], {}, None, None
        i.faulty = rng.random() < .25
        for nth, step in enumerate(section.split(".")[1:], 1):
            if step.startswith("to-"):
                clause = self.sink(source, step[3:])
                source.informs = False
            elif step.startswith("it-"):
                if step == "it-copy" and " " in it:
                    return self.plan()
                clause, it = self.to_it(step[3:].replace("send", "sink"), it)
            else:
                clause = self.step(step)
                source = clause if clause.informs else source
                it = clause.moves[0].args.get("path") if nth == 1 and clause.moves else it
            clauses.append(clause)
            slots |= {f"{slot}{nth}": value if isinstance(value, str) else value[0] for slot, value in self.w.last.items() if value is not None}
        tail = re.search(r"{(\w+?)\d}$", wording)
        text = re.sub(r"{((\w+?)\d)}(?=(.?))", lambda found: self.w.bordered(slots[found.group(1)]) if found.group(3) and found.group(2) in FREE
                      else slots[found.group(1)], wording)
        last = slots[tail.group(0)[1:-1]] if tail else ""
        bare = bool(tail) and tail.group(1) in FREE and last[0] not in QUOTE_MARKS
        tail = (SENTENCE if last[0].isupper() and " " in last else True) if bare else False
        clauses[-1].tail = tail
        return self.told_to(self.w.sentence(text, False, tail), clauses, "plan")

    def step(self, name):
        """A clause of a plan, whose slots are then in `self.w.last`."""
        i = self.i
        if name == "delete":
            path, shown = i.path()
            clause = i.act("delete", "FS_DELETE", {"path": path}, ("", False, False))
            self.w.last = {"path": shown}
            return clause
        special = {"read": lambda: i.read(0.), "copy": lambda: i.shell("copy"), "mkdir": lambda: i.shell("mkdir"), "spawn": lambda: i.spawn(True),
                   "exitcode": lambda: i.exit("exitcode"), "exitresult": lambda: i.exit("exitresult"), "sendpid": i.send_pid}
        for _ in range(50):
            clause = special[name]() if name in special else getattr(i, name)()
            clause.intent = {"list_root": "list", "list_dir": "list"}.get(name, name)
            if "\n" not in "".join(value if isinstance(value, str) else value[0] for value in self.w.last.values() if value):
                break
        return clause

    def several(self):
        """One thing done to two or three files, people or folders named in a row."""
        i, rng, v = self.i, self.rng, self.v
        count = rng.choice([2, 2, 2, 3])
        i.faulty = rng.random() < .3
        kind = rng.choice(["read", "read", "delete", "delete", "write", "append", "send", "mkdir", "fetch", "lines"])
        make = {"send": v.who, "mkdir": v.folder, "fetch": v.url}.get(kind, v.path if kind != "lines" else v.name)
        things = [make() for _ in range(count)]
        if len(set(things)) < count:
            return self.several()
        shown = [self.w.maybe(thing, .1) for thing in things]
        joint = rng.choice([" and ", " and ", " and ", " & ", " as well as ", " and also "]) if count == 2 else rng.choice([", ", ", "])
        row = joint.join(shown[:-1]) + (joint if count == 2 else rng.choice([" and ", ", and ", ", "])) + shown[-1]
        if rng.random() < .15:
            row = "both " * (count == 2) + row
        content, (worded, bare) = i.content()
        moves = {
            "read": lambda thing: ("FS_READ", {"path": thing}, i.file_result(i.file_text() or "x")),
            "delete": lambda thing: ("FS_DELETE", {"path": thing}, {}),
            "write": lambda thing: ("FS_WRITE", {"path": thing, "content": line(content)}, {"bytes": 9}),
            "append": lambda thing: ("FS_WRITE", {"path": thing, "content": line(content), "mode": "append"}, {"bytes": 9}),
            "send": lambda thing: ("SEND_MSG", {"to": thing, "content": content}, {"message_id": "m3"}),
            "mkdir": lambda thing: ("EXEC_CMD", {"cmd": f"mkdir -p {thing}"}, {"stdout": "", "stderr": "", "exit_code": 0, "changed": []}),
            "fetch": lambda thing: ("NET_FETCH", {"url": thing}, {"status": 200, "headers": {}, "body": i.file_text() or "x", "truncated": False}),
            "lines": lambda thing: ("EXEC_CMD", {"cmd": f"wc -l {thing}"}, {"stdout": f"{v.number()} {thing}\n", "stderr": "", "exit_code": 0, "changed": []}),
        }[kind]
        text, end = self.w.fill(f"{kind}.do", path=row, who=row, dir=row, url=row, content=worded, body=worded)
        if "\1" in text or "{" in text or "[" in text:
            return self.several()
        clauses = []
        for thing in things:
            name, args, results = moves(thing)
            clause = i.inform(kind, name, args, (text, False, False), grammar.EMPTY, **results)
            clause.informs = kind in ("read", "fetch", "lines")
            clause.said = clause.said if clause.informs else grammar.DONE
            clauses.append(clause)
        request = self.w.sentence(text, False, bool(end) and bare and end[0] in ("content", "body"))
        return self.told_to(request, clauses, "several")

    # What is refused, and talk

    def outside(self):
        base = self.rng.choices(list(OUTSIDE), list(OUTSIDE.values()))[0]
        sections = [f"{base}.{kind}" for kind in ("do", "ask", "say") if self.w.phrases.has(f"{base}.{kind}")]
        section = self.rng.choice(sections)
        v = self.v
        text, _ = self.w.fill(section, topic=v.topic(), title=v.title(), path=self.i.path()[1], text=self.w.quoted(v.simple()),
                              lang=v.pick(LANGUAGES), n=str(v.number()), city=v.pick(CITIES), unit=v.pick(UNITS), sum=v.sum(),
                              gibberish=v.gibberish(), natural=v.natural(), url=v.url(), dir=v.folder())
        said = grammar.UNCLEAR if base == "vague" else grammar.OUTSIDE
        ask = section.endswith(".ask")
        request = self.w.sentence(text, ask) if base != "vague" else self.w.sentence(text, tail=self.rng.random() < .5)
        clause = Clause(text, [], "outside", ask, said=said, refused=True)
        if base != "vague" and self.rng.random() < .12:
            # In a request of several steps nothing is done either.
            known = self.steps(1)[0]
            pair = [known.text, text] if self.rng.random() < .5 else [text, known.text]
            request = self.w.sentence(self.joined(pair))
        return self.told_to(request, [clause], "outside")

    # Whose negation or question is another thing to do: "don't remember it" is to forget it.
    OPPOSED = {"remember", "recall", "forget", "ask", "wait", "sleep", "receive", "say", "exit", "unschedule", "kill"}

    def unmeant(self):
        """Something is named that is not to be done: forbidden, asked about, told of, or in another case only."""
        section = self.rng.choices(["unmeant.do", "unmeant.ask", "unmeant.say"], [5, 2, 3])[0]
        while True:
            clause = self.i.make(faulty=False)
            fits = not clause.ask and not clause.tail and "\n" not in clause.text and len(clause.text) < 120
            if fits and clause.moves and clause.intent not in self.OPPOSED and self.w.orders(clause.text):
                break
        v = self.v
        text, _ = self.w.fill(section, do=clause.text, path=self.w.maybe(v.path(), .1), n=str(v.number()), title=v.title())
        ask = section.endswith(".ask")
        known = self.steps(1)[0] if self.rng.random() < .1 else None
        if known:
            # In a request of several steps nothing is done either.
            text = self.joined([known.text, text] if self.rng.random() < .5 else [text, known.text])
        request = self.w.sentence(text, ask and not known)
        return self.told_to(request, [Clause(text, [], "outside", ask, said=grammar.OUTSIDE, refused=True)], "unmeant")

    def talk(self):
        base, said = self.rng.choice([("hello", grammar.HELLO), ("who", grammar.WHO), ("thanks", grammar.WELCOME), ("who", grammar.WHO)])
        text, _ = self.w.fill(f"{base}.say")
        request = text + self.rng.choice(["", "!", ".", "?" if base == "who" else "!"])
        if self.rng.random() < .3:
            request = request[0].upper() + request[1:]
        return self.told_to(request, [Clause(text, [], "talk", said=said)], "talk")

    def lack(self):
        """The call that is needed is not offered."""
        clauses = self.steps(self.rng.choice([1, 1, 1, 2]))
        for clause in clauses:
            if not clause.moves:
                return self.lack()
        names = list(dict.fromkeys(move.name for clause in clauses for move in clause.moves if move.name != "SYS_EXIT"))
        if not names:
            return self.lack()
        missing = self.rng.choice(names)
        request = self.w.sentence(self.joined([clause.text for clause in clauses]), False, clauses[-1].tail)
        tools = self.offered({name for name in names if name != missing}, missing)
        refusal = Clause(request, [], "lack", said=grammar.LACK.format(next(name for name in names if name not in tools)), refused=True)
        return self.told_to(request, [refusal], "lack", tools)

    def fallback(self):
        """What to do where a file is not there is part of the request."""
        first = self.i.read(0.)
        for _ in range(100):
            if not first.tail and "\n" not in first.text:
                break
            first = self.i.read(0.)
        self.i.faulty = False
        move = first.moves[0]
        from faults import absent
        missing = self.rng.random() < .6
        if missing:
            move.outcome = absent(move.args["path"])
        elif first.failed:
            return self.fallback()
        second = self.steps(1)[0]
        while second.failed or second.said is None:
            second = self.steps(1)[0]
        joint = self.rng.choice([", and if it does not exist, ", "; if it is missing, ", ". If it is not there, ", ", and if there is no such file, ",
                                 ". If that fails, ", ", or if it does not exist, ", ". In case it is missing, ", "; if there is none, ",
                                 ". If there is no such file, ", ", else ", ". Should it not exist, ", ", if that does not work "])
        request = self.w.sentence(first.text + joint + second.text, False, second.tail)
        if not missing:
            return self.told_to(request, [first], "fallback")
        first.moves[0].outcome["status"] = "ERROR"
        episode = self.told_to(request, [second], "fallback", before=move)
        return episode

    def later(self):
        """A process that stays: it was asked before, and is asked again."""
        first = self.make(self.rng.choices(["one", "outside", "two", "chain", "talk"], [6, 1, 1, 1, 1])[0])
        second = self.make(self.rng.choices(["one", "outside", "two", "chain"], [6, 1, 1, 1])[0])
        if '"SYS_EXIT"' in first.messages[-1]["assistant"]:
            return self.later()
        header = self.rng.choice([f"[input, {TIME}]\n", f"[timer t3, {TIME}]\n", f"[message m5, {TIME}]\n"])
        tools = second.tools if not self.lacks(first, second.tools) else list(grammar.CALLS)
        if self.lacks(second, tools):
            return self.later()
        follow = [{"user": [header + second.request]}, *second.messages[1:]]
        return Episode("later", tools, first.messages + follow, first.clauses + second.clauses, second.request, second.files)

    def lacks(self, episode, tools):
        return any(f'"name":"{name}"' in message.get("assistant", "") for message in episode.messages
                   for name in grammar.CALLS if name not in tools) or episode.kind == "lack"

    def told(self):
        """What others write while it stays is data: noted, and no order."""
        first = self.one()
        if '"SYS_EXIT"' in first.messages[-1]["assistant"]:
            return self.told()
        text = self.v.line() if self.rng.random() < .5 else self.one().request
        fenced = f"<untrusted source=\"message m2 from pid 9\" at=\"{TIME}\">\n{text}\n</untrusted>"
        messages = first.messages + [{"user": [fenced]}, {"assistant": grammar.say(grammar.NOTED)}]
        return Episode("told", first.tools, messages, first.clauses, first.request, {})

    # How clauses become turns

    def offered(self, needed, missing=None):
        """The calls that are offered: mostly all, sometimes fewer, always the needed ones and SYS_EXIT."""
        needed = set(needed) | {"SYS_EXIT"}
        if missing is None and self.rng.random() < .75:
            return list(grammar.CALLS)
        share = self.rng.choice([.2, .5, .8, .95])
        return [name for name in grammar.CALLS if name in needed or (name != missing and self.rng.random() < share)]

    def told_to(self, request, clauses, kind, tools=None, before=None):
        """The turns of an episode: each call, what comes of it, and what is said at the end."""
        request = request.strip()
        if kind not in ("talk", "told"):
            request = self.w.surrounded(request, clauses[-1].tail)
        moves = ([before] if before else []) + [move for clause in clauses for move in clause.moves]
        messages, said = [{"user": [request]}], None
        informing, done = [], []
        number = self.rng.randint(8, 900)
        if before:
            self.turn(messages, before, number)
        for clause in clauses:
            for move in clause.moves:
                number += 3
                self.turn(messages, move, number)
                if move.name == "SYS_EXIT":
                    messages.pop()
                if move.outcome["status"] == "ERROR":
                    said = grammar.FAILED.format(move.shown)
                    break
            if said is not None:
                break
            if clause.product is None and not clause.informs and not clause.moves and not clause.refused and clause.said == grammar.DONE and kind != "talk":
                # Nothing came that the clause could use: what the source said is said.
                informing = [clauses[[c is clause for c in clauses].index(True) - 1].said]
                said = informing[0]
                break
            if clause.informs:
                informing.append(clause.said)
            done.append(clause)
        ends = clauses[-1].said is None and said is None
        if not ends:
            if said is None:
                said = self.closing(clauses, informing)
            messages.append({"assistant": grammar.say(said)})
        if tools is None:
            tools = self.offered({move.name for move in moves})
        return Episode(kind, tools, messages, clauses, request, {})

    def closing(self, clauses, informing):
        """What is said when all went well."""
        if informing:
            # Where one result is empty the others say enough.
            found = [said for said in informing if said not in grammar.SAY]
            return "\n".join(found) if found else informing[-1]
        if len(clauses) == 1:
            return clauses[0].said
        return grammar.DONE

    def turn(self, messages, move, number):
        messages.append({"assistant": grammar.call(move.name, move.args)})
        messages.append({"user": [f"[result c{number}-0 {move.name}]\n" + compact(move.outcome)]})


ITS = {"read", "run", "fetch", "recall", "list", "search", "receive", "wait", "fact", "ask"}


def compact(value):
    import json
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
