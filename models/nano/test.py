"""Checks of everything but the network; needs nothing beside Python. `python3 -B models/nano/test.py`

What is checked: the calls and their fields are the kernel's; each answer of the generator is one that the copy grammar
allows; ids of a whole episode are those of its prompts; held-out wordings are not in the training; the vectors are current.
"""

import json
import re
import unittest
from pathlib import Path

import compositions
import grammar
import play
import prompt
import vectors
import world
from dataset import Dataset, ids_of
from phrases import is_held

HERE = Path(__file__).parent
EPISODES = 600


def sources(messages):
    """The texts that spans may come from, escaped."""
    found = []
    for message in messages:
        for part in message.get("user", []):
            if part.startswith("[result "):
                header, _, body = part.partition("]\n")
                outcome = json.loads(body)
                name = header.split(" ")[-1]
                error = outcome.get("error")
                text = f"{error['code']} {error['message']}" if error else prompt.text_of(name, outcome["result"]) or "(nothing)"
            else:
                text = part
            found.append(grammar.esc(text))
    return found


def made_of(parts, value, shown):
    """Whether a value is the literal parts with a span of something shown between each and the next."""
    if not value.startswith(parts[0]):
        return False
    rest = value[len(parts[0]):]
    if len(parts) == 1:
        return rest == ""
    ends = [len(rest)] if parts[1:] == [""] else [found.start() for found in re.finditer(re.escape(parts[1]), rest)]
    return any(end > 0 and any(grammar.esc(rest[:end]) in text for text in shown) and made_of(parts[1:], rest[end:], shown)
               for end in ends)


class Answers(unittest.TestCase):
    def setUp(self):
        self.data = Dataset(seed=99)

    def copied(self, value, shown, where):
        self.assertTrue(any(grammar.esc(value) in text for text in shown), f"{value!r} stands nowhere in {where!r}")

    def field(self, kind, value, shown, where):
        if kind == grammar.COPY:
            self.copied(value, shown, where)
        elif kind == grammar.COPYLINE:
            if not any(grammar.esc(value) in text for text in shown):
                self.copied(value.removesuffix("\n"), shown, where)
        elif kind == grammar.EDITS:
            for edit in value:
                self.copied(edit["old"], shown, where)
                if edit["new"]:
                    self.copied(edit["new"], shown, where)
        elif isinstance(kind, list) and kind[0] != "list":
            self.template(kind, value, shown, where)

    def template(self, templates, value, shown, where):
        if not any(made_of(template.split("{}"), value, shown) for template in templates):
            self.fail(f"no template makes {value!r} from {where!r}")

    def test_each_is_what_the_grammar_allows(self):
        for number in range(EPISODES):
            episode = self.data.episode(number)
            for nth, message in enumerate(episode.messages):
                if "assistant" not in message:
                    continue
                shown, reply = sources(episode.messages[:nth]), json.loads(message["assistant"])
                if "say" in reply:
                    # Lists of results are joined by line feeds, one template for each number of them.
                    self.template(grammar.SAY, reply["say"], shown, episode.messages)
                    continue
                (made,) = reply["calls"]
                self.assertIn(made["name"], episode.tools)
                for (field, kind), value in zip(grammar.shape_of(made["name"], made["args"]), made["args"].values()):
                    self.field(kind, value, shown, episode.messages)

    def test_an_episode_has_the_ids_of_its_prompts(self):
        tokenizer = self.data.tokenizer
        for number in range(200):
            episode = self.data.episode(number)
            ids, mask = ids_of(episode, tokenizer)
            for nth, message in enumerate(episode.messages):
                if "assistant" in message and len(ids) < prompt.PROMPT_IDS:
                    asked = prompt.render({"tools": episode.tools, "messages": episode.messages[:nth]}, tokenizer)
                    answer = tokenizer.encode(message["assistant"]) + [tokenizer.id["<|end|>"]]
                    self.assertEqual(ids[:len(asked) + len(answer)], asked + answer)
                    self.assertEqual(mask[len(asked):len(asked) + len(answer)], [1] * len(answer))

    def test_it_is_the_same_again(self):
        again = Dataset(seed=99)
        for number in range(50):
            self.assertEqual(self.data.example(number), again.example(number))


class Tokens(unittest.TestCase):
    def test_texts_come_back(self):
        tokenizer = Dataset(seed=1).tokenizer
        for text in vectors.TEXTS:
            self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)

    def test_a_string_has_the_same_ids_in_request_and_call(self):
        tokenizer = Dataset(seed=1).tokenizer
        for path in ("read.txt", "the/file.md", "a\tb \"c\".txt", "файл read"):
            escaped = grammar.esc(path)
            for around in (f"read {escaped} now", f'\\"{escaped}\\"', grammar.call("FS_READ", {"path": path}), f"x\\n{escaped}\\n"):
                inside, ids = tokenizer.encode(escaped), tokenizer.encode(around)
                self.assertTrue(any(ids[at:at + len(inside)] == inside for at in range(len(ids))), around)

    def test_the_vectors_are_current(self):
        for name, written in vectors.lines().items():
            self.assertEqual((HERE / "vectors" / name).read_text(), written, f"{name}: run vectors.py")


    def test_the_compositions_are_current(self):
        for name, written in compositions.lines(Dataset(seed=1).phrases).items():
            self.assertEqual((HERE / "compositions" / name).read_text(), written, f"{name}: run compositions.py")


    def test_what_the_compositions_expect_can_be_done(self):
        for file in sorted((HERE / "compositions").glob("*.jsonl")):
            for row in map(json.loads, file.read_text().splitlines()):
                place, calls, shown = world.World(row["setup"]), [], []
                for name, args in row["expect"].get("calls", []):
                    outcome = place.call(name, args)
                    self.assertEqual(outcome["status"], "SUCCESS", row["task"])
                    calls.append((name, args))
                    shown.append(prompt.text_of(name, outcome["result"]))
                self.assertTrue(play.judge(row["expect"], place, calls, "\n".join(shown or row["expect"]["says"])), row["task"])
                self.assertFalse(play.judge(row["expect"], place, calls[1:], ""), row["task"])
                place.close()


class Split(unittest.TestCase):
    def test_training_sees_no_held_out_wording(self):
        phrases = Dataset(seed=1).phrases
        import random
        chance = random.Random(3)
        for section, lines in phrases.lines.items():
            if all(split for _, split in lines):
                for _ in range(30):
                    self.assertFalse(is_held(phrases.pick(section, chance, False)), section)


class Schemas(unittest.TestCase):
    def test_calls_and_fields_are_the_kernels(self):
        page = (HERE.parent.parent / "docs" / "reference" / "system-calls.md").read_text()
        for name, shapes in grammar.CALLS.items():
            section = re.search(rf"^## {name}$.*?^ARGUMENTS$(.*?)^RESULT$", page, re.S | re.M)
            self.assertIsNotNone(section, name)
            fields = re.findall(r"^  (\w+)(?: \(optional\))?$", section.group(1), re.M)
            for shape in shapes:
                own = [field for field, _ in shape]
                self.assertEqual(own, [field for field in fields if field in own], name)


if __name__ == "__main__":
    unittest.main()
