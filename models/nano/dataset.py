"""Examples as ids: an episode's whole history, with a mask that is 1 where the model's own words stand.

Start at Dataset. What always holds: an example is made of its number and the seed alone, so training can go on anywhere;
every answer decodes to a shape of grammar.py. `python3 dataset.py` prints examples.
"""

import random
import sys

import grammar
import prompt
from episodes import Episodes
from intents import Intents
from phrases import Phrases
from tokenizer import Tokenizer
from values import Values
from wording import Wording


class Dataset:
    """Examples by number. `held` takes wordings and words that training never sees."""

    def __init__(self, seed, held=False, phrases=None, tokenizer=None, kind=None):
        self.seed, self.held, self.kind = seed, held, kind
        self.phrases = phrases or Phrases()
        self.tokenizer = tokenizer or Tokenizer()

    def episode(self, number):
        rng = random.Random(f"{self.seed} {number}")
        values = Values(rng, self.held)
        wording = Wording(self.phrases, values, rng, self.held)
        return Episodes(Intents(wording)).make(self.kind)

    def example(self, number, short=0.):
        """Ids and mask of one episode; the next number's where it does not fit the context. That share of the examples that
        is `short` ends behind the first answer: what is asked for is learned there, at a third of the cost."""
        first = random.Random(f"{self.seed} {number} short").random() < short
        while True:
            ids, mask = ids_of(self.episode(number), self.tokenizer)
            if first:
                stop = mask.index(0, mask.index(1)) if 0 in mask[mask.index(1):] else len(ids)
                ids, mask = ids[:stop], mask[:stop]
            if len(ids) <= prompt.CONTEXT_IDS:
                return ids, mask
            number += 1 << 40


def ids_of(episode, tokenizer):
    """The whole episode as one sequence: the same ids as its prompts and answers have one by one."""
    head, turns = prompt.items({"tools": episode.tools, "messages": episode.messages}, tokenizer)
    reply, end = tokenizer.id["<|reply|>"], tokenizer.id["<|end|>"]
    ids, mask = list(head), [0] * len(head)
    for turn in turns:
        stop = turn.index(end) + 1
        assert turn[0] == reply
        ids += turn
        mask += [0] + [1] * (stop - 1) + [0] * (len(turn) - stop)
    return ids, mask


if __name__ == "__main__":
    data = Dataset(seed=1, kind=sys.argv[2] if len(sys.argv) > 2 else None)
    for nth in range(int(sys.argv[1]) if len(sys.argv) > 1 else 20):
        made = data.episode(nth)
        ids, mask = ids_of(made, data.tokenizer)
        print(f"--- {made.kind}, {len(ids)} ids, {sum(mask)} answered, lacks {[n for n in grammar.CALLS if n not in made.tools]}")
        for message in made.messages:
            print("   ", *message.get("user", []), message.get("assistant", ""))
