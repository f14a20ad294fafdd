"""Checks of everything but the network; needs nothing beside Python. `python3 -B models/nano/test.py`

What is checked: the calls and their fields are the kernel's; each answer of the generator is one that the guide lets through,
and comes back from its tokens; ids of a whole episode are those of its prompts; held-out wordings are not in the training;
no wording has a macro or a slot left in it; lessons are done by their calls; the vectors are current.
"""

import json
import random
import re
import unittest
from pathlib import Path

import compositions
import grammar
import lessons
import play
import prompt
import vectors
import world
from answer import NotShown
from dataset import Dataset, ids_of
from guide import Guide
from phrases import is_held
from tokenizer import CONTROL, Table

HERE = Path(__file__).parent
EPISODES = 600


class Lessons(unittest.TestCase):
    def test_each_is_done_by_its_calls_and_made_of_what_was_shown(self):
        self.assertEqual(lessons.check(sorted(lessons.FOLDER.glob("*.jsonl"))), 0)


class Answers(unittest.TestCase):
    def setUp(self):
        self.data = Dataset(seed=99)

    def asked(self, count):
        """Each answer of some episodes, with what it is asked after."""
        for number in range(count):
            episode = self.data.episode(number)
            for nth, message in enumerate(episode.messages):
                if "assistant" in message:
                    yield episode, prompt.render({"tools": episode.tools, "messages": episode.messages[:nth]}, self.data.tokenizer), message["assistant"]

    def test_each_is_made_of_what_was_shown_and_comes_back(self):
        lost = 0
        for episode, written, answer in self.asked(EPISODES):
            codec = written.codec
            codec.strict = True
            try:
                ids = codec.encode(answer)
            except NotShown:
                # A value in the middle of a word: such an example is not trained on.
                lost += 1
                continue
            self.assertEqual(codec.decode(ids), answer)
            guide = Guide(codec, episode.tools)
            for at, nth in enumerate(ids):
                self.assertIn(nth, guide.nexts(ids[:at]), (answer, at))
            self.assertEqual(guide.nexts(ids), set())
            self.assertIsNone(guide.instead(ids[0]), answer)
            # The end of a name that a request says without its dot may stand in what was read, dot and all.
            lost += codec.instead(ids) is not None
        self.assertLess(lost, EPISODES // 100)

    def test_whatever_the_guide_lets_through_is_an_answer(self):
        chance = random.Random(5)
        for _, written, _ in self.asked(60):
            guide, ids = Guide(written.codec, list(grammar.CALLS)), []
            while nexts := sorted(guide.nexts(ids)):
                end = self.data.tokenizer.id["<|end|>"]
                # It may copy for long: the end is taken now and then where it may come.
                ids.append(end if end in nexts and chance.random() < .3 else chance.choice(nexts))
            reply = json.loads(written.codec.instead(ids) or written.codec.decode(ids))
            self.assertTrue(reply.get("say") or reply["calls"], ids)

    def test_a_value_is_all_of_a_quotation_and_nothing_is_said_twice(self):
        for request, answer in (('write "buy milk" into a.txt', ("FS_WRITE", {"path": "a.txt", "content": "milk\n"})),
                                ("write 'buy milk' into a.txt", ("FS_WRITE", {"path": "a.txt", "content": "buy\n"})),
                                ("say hello to «the old man»", ("SEND_MSG", {"to": "old man", "content": "hello"})),
                                ("put new for old in a.txt", ("FS_EDIT", {"path": "a.txt", "edits": [{"old": "new", "new": "new"}]})),
                                ("put new for old in a.txt", ("FS_EDIT", {"path": "a.txt", "edits": [{"old": "old in a.txt", "new": "new"}]})),
                                ("remove a.txt", ("FS_MOVE", {"from": "a.txt", "to": "a.txt"}))):
            codec = prompt.render({"tools": list(grammar.CALLS), "messages": [{"user": [request]}]}, self.data.tokenizer).codec
            ids, guide = codec.encode(grammar.call(*answer)), Guide(codec, list(grammar.CALLS))
            self.assertFalse(all(nth in guide.nexts(ids[:at]) for at, nth in enumerate(ids)), answer)

    def test_an_episode_has_the_ids_of_its_prompts(self):
        tokenizer = self.data.tokenizer
        for number in range(200):
            episode = self.data.episode(number)
            try:
                ids, mask = ids_of(episode, tokenizer)
            except NotShown:
                continue
            for nth, message in enumerate(episode.messages):
                if "assistant" in message and len(ids) < prompt.PROMPT_IDS:
                    written = prompt.render({"tools": episode.tools, "messages": episode.messages[:nth]}, tokenizer)
                    asked, answer = written.ids, written.codec.encode(message["assistant"])
                    self.assertEqual(ids[:len(asked) + len(answer)], asked + answer)
                    self.assertEqual(mask[len(asked):len(asked) + len(answer)], [1] * len(answer))

    def test_it_is_the_same_again(self):
        again = Dataset(seed=99)
        for number in range(50):
            self.assertEqual(self.data.example(number), again.example(number))


class Tokens(unittest.TestCase):
    def test_tokens_have_places_and_leave_nothing_out(self):
        tokenizer = Dataset(seed=1).tokenizer
        for text in vectors.TEXTS:
            at = 0
            for token in tokenizer.encode(text, Table()):
                self.assertIn(text[at:token.begin], ("", " "), text)
                at = token.end
            self.assertEqual(at, len(text))

    def test_a_name_has_the_same_ids_wherever_it_stands(self):
        tokenizer, table = Dataset(seed=1).tokenizer, Table()
        for path in ("read.txt", "the/file.md", "q7-zorvik_2.log", "файл read"):
            inside = [token.id for token in tokenizer.encode(path, table)]
            for around in (f"read {path} now", f'"{path}"', f"({path}),", f"x\n{path}\n"):
                ids = [token.id for token in tokenizer.encode(around, table)]
                self.assertTrue(any(ids[at:at + len(inside)] == inside for at in range(len(ids))), around)

    def test_no_control_token_comes_from_text(self):
        tokenizer = Dataset(seed=1).tokenizer
        plain = {tokenizer.id[name] for name in CONTROL}
        for name in CONTROL:
            self.assertFalse(plain & {token.id for token in tokenizer.encode(f"x {name} y", Table())})

    def test_a_slip_is_read_as_the_word_that_is_meant(self):
        tokenizer = Dataset(seed=1).tokenizer
        for task, slips in (("delte the fiel docment.txt", {"delte": "delete", "fiel": "file"}), ("Opne it", {"opne": "open"}), ("replace recieve with receive", {}),
                            ("read 'fiel' and x/flie, Delte", {}), ("a fiel, a flie", {"fiel": "file"}), ("fiel" * 9, {})):
            table = Table()
            tokenizer.correct(task, table)
            self.assertEqual(table.slips, slips, task)
        table = Table()
        tokenizer.correct("my fiel", table)
        self.assertEqual([token.id for token in tokenizer.encode("Fiel fiel", table)], [tokenizer.capital, *[tokenizer.known["file"]] * 2])

    def test_the_voices_are_renumberings(self):
        tokenizer = Dataset(seed=1).tokenizer
        rows = [tokenizer.renumbered(voice, 4) for voice in range(4)]
        self.assertEqual(rows[0], sorted(rows[1]))
        self.assertEqual([sum(a != b for a, b in zip(rows[0], row)) for row in rows], [0, 416, 416, 416])

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


class Development(unittest.TestCase):
    def test_its_tasks_name_calls_and_fields_that_there_are(self):
        for file in sorted((HERE / "development").glob("*.jsonl")):
            for row in map(json.loads, file.read_text().splitlines()):
                for name, args in row["expect"].get("calls", []):
                    fields = {field for shape in grammar.CALLS[name] for field, _ in shape}
                    self.assertLessEqual(set(args), fields, row["task"])
                self.assertTrue(any(row["expect"].get(what) for what in ("calls", "calls_any", "says", "files", "gone", "refuses")), row["task"])


class Split(unittest.TestCase):
    def test_training_sees_no_held_out_wording(self):
        phrases = Dataset(seed=1).phrases
        chance = random.Random(3)
        for section, lines in phrases.lines.items():
            if all(split for _, split in lines):
                for _ in range(30):
                    self.assertFalse(is_held(phrases.pick(section, chance, False)), section)


class Wordings(unittest.TestCase):
    def test_nothing_is_left_to_fill_in(self):
        phrases, chance = Dataset(seed=1).phrases, random.Random(4)
        for section in phrases.lines:
            for _ in range(60):
                wording = phrases.pick(section, chance)
                self.assertNotRegex(wording, r"@[A-Z]|[|()]{2}|\{\}", section)


class Schemas(unittest.TestCase):
    def test_calls_and_fields_are_the_kernels(self):
        page = (HERE.parent.parent / "docs" / "reference" / "system-calls.md").read_text()
        for name, shapes in grammar.CALLS.items():
            section = re.search(rf"^## {name}$.*?^ARGUMENTS$(.*?)^RESULT$", page, re.S | re.M)
            self.assertIsNotNone(section, name)
            fields = re.findall(r"^  (\w+) \(.*\)$", section.group(1), re.M)
            for shape in shapes:
                own = [field for field, _ in shape]
                self.assertEqual(own, [field for field in fields if field in own], name)


if __name__ == "__main__":
    unittest.main()
