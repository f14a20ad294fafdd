"""Examples as ids: an episode's whole history, with a mask that is 1 where the model's own words stand.

Start at Dataset. What always holds: an example is made of its number and the seed alone, so training can go on anywhere;
every answer decodes to a shape of grammar.py. `python3 dataset.py` prints examples.
"""

import random
import sys

import grammar
import prompt
from answer import NotShown
from episodes import Episodes
from intents import Intents
from lessons import Lessons
from phrases import Phrases
from tokenizer import SLOTS, Table, Tokenizer
from values import Values
from wording import Wording

# Share of the known words that are taken for unknown: of most examples few, of some many, so that a verb nobody knows is
# told from what stands around it.
HIDDEN, HIDDEN_MUCH, MUCH_ONE_IN = .02, .25, 12


class Dataset:
    """Examples by number. `held` takes wordings and words that training never sees."""

    def __init__(self, seed, held=False, phrases=None, tokenizer=None, kind=None):
        self.seed, self.held, self.kind = seed, held, kind
        self.phrases, self.lessons = phrases or Phrases(), Lessons()
        self.tokenizer = tokenizer or Tokenizer()
        self.words = [word for word in self.tokenizer.known if word.isalpha()]

    def episode(self, number):
        rng = random.Random(f"{self.seed} {number}")
        values = Values(rng, self.held)
        wording = Wording(self.phrases, values, rng, self.held)
        return Episodes(Intents(wording), self.lessons).make(self.kind)

    def example(self, number, short=0.):
        """Ids and mask of one episode; another's where its answers are no spans or it does not fit the context. That share of
        the examples that is `short` ends behind the first answer: what is asked for is learned there."""
        while True:
            rng = random.Random(f"{self.seed} {number} table")
            try:
                ids, mask = ids_of(self.episode(number), self.tokenizer, self.table(rng))
            except NotShown:
                number += 1 << 40
                continue
            if rng.random() < short:
                stop = mask.index(0, mask.index(1)) if 0 in mask[mask.index(1):] else len(ids)
                ids, mask = ids[:stop], mask[:stop]
            if len(ids) <= prompt.CONTEXT_IDS:
                return ids, mask
            number += 1 << 40

    def table(self, rng):
        """Slots in any order, so that each is learned, and some known words taken for unknown."""
        order = {kind: rng.sample(range(count), count) for kind, count in SLOTS.items()}
        share = HIDDEN_MUCH if rng.randrange(MUCH_ONE_IN) == 0 else HIDDEN
        hidden = frozenset(rng.sample(self.words, int(share * len(self.words))))
        return Table(order, hidden)


def ids_of(episode, tokenizer, table=None):
    """The whole episode as one sequence: the same ids as its prompts and answers have one by one."""
    written = prompt.write(*prompt.items(episode.messages), prompt.Prompt(tokenizer, episode.tools, table, strict=True))
    if written.table.ran_out():
        raise NotShown("there are more words than slots")
    return written.ids, written.mask


if __name__ == "__main__":
    data = Dataset(seed=1, kind=sys.argv[2] if len(sys.argv) > 2 else None)
    for nth in range(int(sys.argv[1]) if len(sys.argv) > 1 else 20):
        made = data.episode(nth)
        try:
            ids, mask = ids_of(made, data.tokenizer)
        except NotShown:
            # A value in the middle of a word: such an example is not trained on.
            continue
        print(f"--- {made.kind}, {len(ids)} ids, {sum(mask)} answered, lacks {[n for n in grammar.CALLS if n not in made.tools]}")
        for message in made.messages:
            print("   ", *message.get("user", []), message.get("assistant", ""))
