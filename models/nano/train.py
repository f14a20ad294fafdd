"""Trains the network. Made for two CPU cores; a GPU is used where --device names one. May be killed at any time and goes on
with --resume.

Start at main. What always holds: the examples follow from the seed and their number, so a resumed run sees hardly one twice
(which of a chunk it learns from depends on the weights);
checkpoints are whole (written aside, then renamed); loss is on the model's own words alone; evaluation here is teacher-
forced and a first look only, evaluate.py decodes freely. Nothing is written into the repository.

    nice -n 19 python3 train.py --run first            # a new run in ~/.cache/aos-nano/first
    nice -n 19 python3 train.py --run first --resume   # goes on
    python3 train.py --quick                           # a minute: does it learn at all?
    python3 train.py --run gpu --device cuda --workers 14 --batch 49152 --tokens 6e8 --cpu-hours 99
"""

import argparse
import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import torch
from torch.nn import functional

import export
import vocabulary
from dataset import Dataset
from muon import Muon
from network import Network, Shape

CHUNK = 2048
# Of the examples whose every token is about as likely as can be, one in so many is learned from, and counts for as many.
EASY_LOSS, EASY_ONE_IN = .1, 10
# A look costs a third of learning, so it is worth its time once this share of some of a chunk's examples is easy.
LOOK_EASY, LOOK_SOME = .4, 128
CHECKPOINT_S, REPORT_STEPS = 120, 20
AVERAGE = .998
# Chunks that are made while one is learned from.
AHEAD = 8


def batches(rows, tokens):
    """Rows (ids, mask, weight) of about the same length together, so that little is padding."""
    rows = sorted(rows, key=lambda row: len(row[0]))
    found, batch = [], []
    for row in rows:
        # Attention's memory grows with the square of the length.
        if batch and (len(batch) + 1) * len(row[0]) * (1 + len(row[0]) / 1024) > tokens:
            found.append(batch)
            batch = []
        batch.append(row)
    return found + [batch] if batch else found


def tensors(batch, pad):
    """Inputs and targets; -100 where no answer is asked for."""
    length = (max(len(ids) for ids, *_ in batch) - 1 + 7) // 8 * 8
    x = torch.full((len(batch), length), pad)
    y = torch.full((len(batch), length), -100)
    for row, (ids, mask, _) in enumerate(batch):
        x[row, :len(ids) - 1] = torch.tensor(ids[:-1])
        targets = torch.tensor(ids[1:])
        targets[torch.tensor(mask[1:]) == 0] = -100
        y[row, :len(ids) - 1] = targets
    return x, y


class Chunks:
    """The examples of a chunk, made here or, ahead of time, by other processes."""

    def __init__(self, data, workers):
        self.data, self.coming = data, {}
        # Whoever is forked has the data set already.
        self.pool = multiprocessing.get_context("fork").Pool(workers) if workers else None

    def numbers(self, chunk, short):
        return [(number, short) for number in range(chunk * CHUNK, (chunk + 1) * CHUNK)]

    def rows(self, chunk, short):
        if not self.pool:
            return [self.data.example(*each) for each in self.numbers(chunk, short)]
        for ahead in range(chunk, chunk + AHEAD):
            if ahead not in self.coming:
                self.coming[ahead] = self.pool.starmap_async(self.data.example, self.numbers(ahead, short), 64)
        return self.coming.pop(chunk).get()


class Run:
    """A training run: its weights, their running average, the optimiser, and how far it is."""

    def __init__(self, options):
        self.options = options
        self.folder = Path(os.path.expanduser(options.cache)) / options.run
        self.folder.mkdir(parents=True, exist_ok=True)
        self.data = Dataset(options.seed)
        torch.manual_seed(options.seed)
        # Before the device is touched: it must not be forked.
        self.chunks = Chunks(self.data, options.workers)
        shape = Shape(len(self.data.tokenizer.tokens), options.width, options.layers, options.inner)
        self.network = Network(shape).to(options.device)
        self.average = {name: weights.detach().clone() for name, weights in self.network.named_parameters()}
        matrices = [weights for weights in self.network.blk.parameters() if weights.dim() == 2]
        norms = [weights for weights in self.network.parameters() if weights.dim() != 2]
        embedding = {"params": [self.network.token_embd.weight], "weight_decay": .05}
        self.optimisers = [Muon(matrices, options.matrix_rate, weight_decay=.05),
                           torch.optim.AdamW([embedding, {"params": norms, "weight_decay": 0.}], lr=options.rate, betas=(.9, .98))]
        self.progress = {"step": 0, "tokens": 0, "examples": 0, "chunk": 0, "batch": 0, "cpu_s": 0.}

    def save(self):
        aside = self.folder / "state.new"
        torch.save({"network": self.network.state_dict(), "average": self.average, "optimisers": [each.state_dict() for each in self.optimisers],
                    "progress": self.progress, "shape": self.network.shape.saved(), "tokens": self.data.tokenizer.tokens}, aside)
        aside.rename(self.folder / "state.pt")

    def load(self):
        state = torch.load(self.folder / "state.pt", map_location=self.options.device)
        if state["tokens"] != self.data.tokenizer.tokens:
            raise SystemExit("the vocabulary is not that of the checkpoint: begin a new run")
        self.network.load_state_dict(state["network"])
        self.average = state["average"]
        for optimiser, saved in zip(self.optimisers, state["optimisers"]):
            optimiser.load_state_dict(saved)
        self.progress = state["progress"]

    def begin_with(self, path):
        """The weights of a file that export.py wrote, such as the shipped one: all else is new."""
        weights, tokens = export.read(path)
        named = {name: torch.from_numpy(array) for name, array in weights.items()}
        # Words that are new to it begin as the mean of those that stand for them in wordings; where there are none, as any word,
        # each a little different.
        rows, at, others = named["token_embd.weight"], {token: nth for nth, token in enumerate(tokens)}, vocabulary.alike()
        words = rows[[at[word] for word in self.data.words if word in at]]
        found = words.mean(0) + words.std(0) * torch.randn(len(self.data.tokenizer.tokens), rows.shape[1])
        for nth, token in enumerate(self.data.tokenizer.tokens):
            known = [[at[word] for word in group if word in at] for group in others[token]]
            if token in at:
                found[nth] = rows[at[token]]
            elif any(known):
                found[nth] = torch.stack([rows[group].mean(0) for group in known if group]).mean(0)
        named["token_embd.weight"] = found
        self.network.load_state_dict(named | {name: value for name, value in self.network.state_dict().items() if name not in named})
        self.average = {name: weights.detach().clone() for name, weights in self.network.named_parameters()}

    def done(self):
        """Share of the run that is behind it, of its tokens or of its processor time, whichever is more."""
        return min(1., max(self.progress["tokens"] / self.options.tokens, self.progress["cpu_s"] / (self.options.cpu_hours * 3600)))

    def pace(self):
        """Share of the full rate: a short warm-up, the whole, and over the last `cool` of the run down to nothing."""
        return min(1., (self.progress["step"] + 1) / 100, (1.02 - self.done()) / self.options.cool)

    def short(self):
        """Share of examples that end behind their first answer: most at first, while it is learned what is asked for."""
        return .5 - .4 * self.done()

    def batch(self):
        """Tokens of a step: few at first, when each step teaches much, more later, when each is mostly noise."""
        return int(self.options.batch * (1 + 2 * min(1., (1 + self.progress["chunk"] * CHUNK) / self.options.grow)) / 3)

    def losses(self, batch):
        """The inputs, and of each token that is asked for its row and its loss."""
        x, y = (part.to(self.options.device) for part in tensors(batch, self.data.tokenizer.id["<|pad|>"]))
        with torch.autocast(self.options.device, dtype=torch.bfloat16):
            asked = y != -100
            logits = self.network.logits(self.network.hidden(x, asked))
        return x, asked.nonzero()[:, 0], functional.cross_entropy(logits.float(), y[asked], reduction="none")

    @torch.no_grad()
    def looked_at(self, rows):
        """Each of the rows with the greatest loss of its tokens."""
        for batch in batches(rows, self.batch()):
            _, row, losses = self.losses(batch)
            yield from zip(batch, torch.zeros(len(batch), device=row.device).scatter_reduce(0, row, losses, "amax").tolist())

    def worth_learning(self, rows, rng):
        """Those of the rows that teach something, and a few of the others, which count for as many as are left out: the mean gradient
        is that of all."""
        easy = sum(loss <= EASY_LOSS for _, loss in self.looked_at(rng.sample(rows, LOOK_SOME)))
        if easy < LOOK_EASY * LOOK_SOME:
            return rows
        found = []
        for (ids, mask, _), loss in self.looked_at(rows):
            if loss > EASY_LOSS:
                found.append((ids, mask, 1.))
            elif rng.randrange(EASY_ONE_IN) == 0:
                found.append((ids, mask, float(EASY_ONE_IN)))
        return found

    def learn(self, batch):
        x, row, losses = self.losses(batch)
        weights = torch.tensor([weight for *_, weight in batch], device=row.device)[row]
        loss = (weights * losses).sum() / weights.sum()
        for optimiser, rate in zip(self.optimisers, (self.options.matrix_rate, self.options.rate)):
            for group in optimiser.param_groups:
                group["lr"] = rate * self.pace()
            optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.)
        for optimiser in self.optimisers:
            optimiser.step()
        share = min(AVERAGE, self.progress["step"] / (self.progress["step"] + 20))
        with torch.no_grad():
            for name, weights in self.network.named_parameters():
                self.average[name].mul_(share).add_(weights, alpha=1 - share)
        self.progress["step"] += 1
        self.progress["tokens"] += x.numel()
        self.progress["examples"] += len(batch)
        return loss.item()

    def go(self):
        options, progress = self.options, self.progress
        # Stopped in good order, it loses nothing.
        signal.signal(signal.SIGTERM, lambda *_: setattr(options, "minutes", 0.))
        loss, saved, began, cpu = None, time.time(), time.time(), time.process_time()
        seen = progress["tokens"]
        while self.done() < 1 and time.time() - began < options.minutes * 60:
            rows = [(*row, 1.) for row in self.chunks.rows(progress["chunk"], self.short())]
            rng = random.Random(progress["chunk"])
            found = batches(self.worth_learning(rows, rng), self.batch())
            rng.shuffle(found)
            for batch in found[progress["batch"]:]:
                value = self.learn(batch)
                loss = value if loss is None else .98 * loss + .02 * value
                progress["batch"] += 1
                progress["cpu_s"] += time.process_time() - cpu
                cpu = time.process_time()
                if progress["step"] % REPORT_STEPS == 0:
                    speed = (progress["tokens"] - seen) / (time.time() - began)
                    self.report(f"step {progress['step']} tokens {progress['tokens']:,} loss {loss:.4f} pace {self.pace():.3f} "
                                f"{speed:.0f} tokens/s cpu {progress['cpu_s']:.0f} s")
                if time.time() - saved > CHECKPOINT_S:
                    self.save()
                    saved = time.time()
                if self.done() >= 1 or time.time() - began > options.minutes * 60:
                    break
            else:
                progress["chunk"], progress["batch"] = progress["chunk"] + 1, 0
        self.save()
        self.report("saved " + json.dumps(progress))

    def report(self, text):
        print(text, flush=True)
        with open(self.folder / "log", "a") as log:
            log.write(text + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", default="first", help="the name of the run")
    parser.add_argument("--cache", default="~/.cache/aos-nano")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--weights", help="a GGUF file whose weights this run begins with, such as weights/aos-nano.gguf")
    parser.add_argument("--quick", action="store_true", help="a small network and a minute")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--workers", type=int, default=0, help="processes that make examples beside this one")
    parser.add_argument("--tokens", type=float, default=1e9, help="tokens of the whole run, padding counted")
    parser.add_argument("--cpu-hours", type=float, default=3.7, help="processor time of the whole run; two cores take 3.7 hours in two")
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long, ready to be resumed")
    parser.add_argument("--batch", type=int, default=6144, help="tokens of a step")
    parser.add_argument("--grow", type=float, default=40000, help="examples over which the tokens of a step grow from a third to the whole")
    parser.add_argument("--rate", type=float, default=3e-3, help="of the embedding and the norms")
    parser.add_argument("--matrix-rate", type=float, default=.02, help="of all other matrices")
    parser.add_argument("--cool", type=float, default=.5, help="share of the run over which the rate falls")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--inner", type=int, default=704)
    options = parser.parse_args()
    if options.quick:
        options.run, options.layers, options.minutes, options.tokens, options.batch = "quick", 2, 1., 1e6, 2048
    torch.set_num_threads(options.threads)
    run = Run(options)
    if options.resume:
        run.load()
    elif options.weights:
        run.begin_with(options.weights)
    parameters = sum(weights.numel() for weights in run.network.parameters())
    run.report(f"{parameters:,} parameters, vocabulary {run.network.shape.vocabulary}, from step {run.progress['step']}")
    run.go()


if __name__ == "__main__":
    main()
