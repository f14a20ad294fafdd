"""Plays whole episodes with a checkpoint: the model's own answers must be the expected ones.

Start at evaluate. What always holds: wordings and values are the held-out ones unless --seen; weights are those that the
file would hold (Q8_0); an answer counts only if it is the expected one to the last byte; results are fed as if the answer
had been right, and the episode counts only if every answer was. A first look: the evaluation that counts goes through the
real kernel.

    python3 evaluate.py --run first --count 100
"""

import argparse
import collections
import os
import random
from pathlib import Path

import torch

import export
import grammar
import prompt
from dataset import Dataset
from guide import Guide
from network import Network, Shape
from tokenizer import Tokenizer

KINDS = ["one", "two", "three", "chain", "chain_more", "plan", "found", "again", "several", "outside", "lack", "talk", "fallback", "later", "told"]
ANSWER_IDS = 200
# In how many numberings of the slots a prompt is read.
VOICES = 4


class Player:
    """A checkpoint, or a file of weights, that answers prompts."""

    def __init__(self, path, average=True, voices=VOICES):
        self.tokenizer = Tokenizer()
        if path.is_dir():
            state = torch.load(path / "state.pt", map_location="cpu")
            tokens, shape = state["tokens"], Shape(**state["shape"])
            named = {name: export.restored(weights.detach().float().numpy()) for name, weights in state["average" if average else "network"].items()}
            self.told = f"run {path.name}, step {state['progress']['step']}, {state['progress']['tokens']:,} tokens"
        else:
            named, tokens = export.read(path)
            shape, self.told = Shape(len(tokens)), str(path)
        assert tokens == self.tokenizer.tokens, "words.txt or grammar.py changed since"
        self.network = Network(shape)
        weights = {name: torch.from_numpy(array.copy()) for name, array in named.items()}
        self.network.load_state_dict(self.network.state_dict() | weights)
        self.network.eval()
        self.voices = torch.tensor([self.tokenizer.renumbered(voice, voices) for voice in range(voices)])

    @torch.no_grad()
    def reply(self, asked):
        """The reply to a prompt {"tools", "messages"}: the likeliest token of those that may come, again and again. Likely is
        what the voices find so together, each of which reads other slots."""
        written = prompt.render(asked, self.tokenizer)
        guide, end = Guide(written.codec, asked["tools"]), self.tokenizer.id["<|end|>"]
        past, found, new = [[] for _ in self.network.blk], [], written.ids
        while len(found) < ANSWER_IDS:
            logits = self.network.step(self.voices[:, new], past).gather(1, self.voices).sum(0)
            nexts = torch.tensor(sorted(guide.nexts(found)))
            best = int(nexts[logits[nexts].argmax()])
            if not found and guide.instead(best):
                return guide.instead(best)
            found.append(best)
            if best == end:
                return written.codec.instead(found) or written.codec.decode(found)
            new = [best]
        return grammar.say("")


def play(player, episode):
    """The first answer that was not the expected one, as (prompt's text, expected, got); None where all were right."""
    for nth, message in enumerate(episode.messages):
        if "assistant" in message:
            got = player.reply({"tools": episode.tools, "messages": episode.messages[:nth]})
            if got != message["assistant"]:
                return episode.request, message["assistant"], got
    return None


def evaluate(player, kinds, count, held, show):
    totals, faults = collections.Counter(), []
    for kind in kinds:
        data = Dataset(seed=4242, held=held, kind=kind, tokenizer=player.tokenizer)
        for number in range(count):
            episode = data.episode(number)
            fault = play(player, episode)
            intents = "+".join(clause.intent for clause in episode.clauses) if kind == "one" else ""
            for name in (kind, *([f"  {intents}"] if intents else [])):
                totals[name, "of"] += 1
                totals[name, "right"] += fault is None
            if fault:
                faults.append((kind, *fault))
    for name in dict.fromkeys(name for name, _ in totals):
        right, of = totals[name, "right"], totals[name, "of"]
        print(f"{name:16} {right:4} of {of:4}  {100 * right / of:5.1f} %")
    for fault in random.Random(1).sample(faults, min(show, len(faults))):
        print("- {}: {!r}\n    expected {}\n    got      {}".format(*fault))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="first")
    parser.add_argument("--cache", default="~/.cache/aos-nano")
    parser.add_argument("--count", type=int, default=100, help="episodes of each kind")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--seen", action="store_true", help="wordings and words of the training, new combinations")
    parser.add_argument("--show", type=int, default=20, help="faults to print")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--raw", action="store_true", help="the weights of the last step instead of their average, early in a run")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    player = Player(Path(os.path.expanduser(options.cache)) / options.run, not options.raw)
    print(f"{player.told}, {'seen' if options.seen else 'held-out'} wordings")
    evaluate(player, options.kinds.split(","), 5 if options.quick else options.count, not options.seen, options.show)


if __name__ == "__main__":
    main()
