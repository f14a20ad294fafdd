"""Chooses the words that the tokenizer knows: those that stand in requests and results often enough to be learned, and those
that stand for such a word in wordings. Writes words.txt.

What always holds: no other word that training sees too rarely. Run it only when the wordings change and the model is trained anew:
the order of words.txt is the order of ids.
"""

import collections
import re
from pathlib import Path

import intents
import values
from dataset import Dataset
from tokenizer import WORDS, Tokenizer

EPISODES, OFTEN = 40000, 5
# How times are written beside the words of intents.py.
TIMES = """mins hrs secs hr st nd rd th mon tue wed thu fri sat sun midday hourly nightly overnight weekdays quarterly monthly
fortnightly yearly""".split()
# Known as they stand, in capitals.
CODES = """ENOENT EPERM EINVAL EEXIST EISDIR ESRCH ECHILD ETIMEDOUT EIO EDQUOT EREJECTED EAGAIN ENOSPC I""".split()


def own_words():
    """The words of wordings, of plain sentences, and of what stands in paths and commands; no names and no made-up ones."""
    texts = [re.sub(r"{\w+}", " ", file.read_text()) for file in (Path(__file__).parent / "phrases").glob("*.txt")]
    texts += [*TIMES, *intents.NUMBER_WORDS, *(text for text, _ in intents.FRACTIONS), *intents.HOURS, *intents.DAYS]
    texts += [re.sub(r"{\w}", " ", " ".join(values.NATURAL)), *values.EXTENSIONS, *values.STATES, *values.TIMES, *" ".join(values.TOP).replace(".", " ").split(), *values.TOOLS,
              *values.UNITS, "html http https www exit code status nothing no file or folder the policy denies"]
    return {word.lower() for text in texts for word in re.findall(r"[A-Za-z]+", text)}


def alike():
    """For each word of the wordings the words that stand for it there: each group of alternatives that are one word, once."""
    found = collections.defaultdict(list)
    for file in sorted((Path(__file__).parent / "phrases").glob("*.txt")):
        for group in re.findall(r"\(([^()]*)\)", file.read_text()):
            words = [word for word in group.split("|") if re.fullmatch("[a-z]+", word)]
            for word in words:
                found[word].append([other for other in words if other != word])
    return found


def main():
    counts, own = collections.Counter(), own_words()
    data = Dataset(seed=77, tokenizer=Tokenizer([]))
    for number in range(EPISODES):
        for message in data.episode(number).messages:
            for part in message.get("user", []):
                # Once an episode: a word that one file repeats is not often.
                counts.update({found.group().lower() for found in WORDS.finditer(part)} & own)
    often = [word for word, count in counts.most_common() if count >= OFTEN]
    likened = [word for word, groups in alike().items() if any(other in often for group in groups for other in group)]
    words = list(dict.fromkeys([*CODES, *often, *sorted(likened)]))
    (Path(__file__).parent / "words.txt").write_text("\n".join(words) + "\n")
    print(len(words), "words; the rarest:", " ".join(words[-20:]))


if __name__ == "__main__":
    main()
