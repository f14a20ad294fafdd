"""Chooses the whole words of the tokenizer: those of the wordings that stand in requests most often. Writes words.txt.

What always holds: only words of the wordings, codes and endings; values are made of bytes and of these. Run it only when the
wordings change and the model is trained anew: the order of words.txt is the order of ids.
"""

import collections
import re
from pathlib import Path

from dataset import Dataset
from tokenizer import Tokenizer

EPISODES, WORDS = 16000, 600
ALWAYS = """ENOENT EPERM EINVAL EEXIST EISDIR ESRCH ECHILD ETIMEDOUT EIO EDQUOT EREJECTED EAGAIN helper append txt md json log
csv py rs toml yaml html http https www com org the policy denies no file or folder exit code status nothing""".split()


def main():
    here = Path(__file__).parent
    own = set()
    for file in (here / "phrases").glob("*.txt"):
        own |= set(re.findall(r"[A-Za-z]{2,}", re.sub(r"{\w+}", " ", file.read_text()).replace("|", " ")))
    own |= {word.capitalize() for word in own}
    data, counts = Dataset(seed=77, tokenizer=Tokenizer([])), collections.Counter()
    for number in range(EPISODES):
        for message in data.episode(number).messages:
            for part in message.get("user", []):
                if not part.startswith("[result "):
                    counts.update(re.findall(r"(?<![\w])[A-Za-z]{2,}(?![\w])", part))
    found = [word for word, _ in counts.most_common() if word in own and word not in ALWAYS][:WORDS]
    words = list(dict.fromkeys([*ALWAYS, *found]))
    (here / "words.txt").write_text("\n".join(words) + "\n")
    print(len(words), "words; the rarest stand", counts[found[-1]], "times in", EPISODES, "requests:", " ".join(found[-20:]))


if __name__ == "__main__":
    main()
