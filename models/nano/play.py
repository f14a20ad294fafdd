"""Plays task files (compositions/, development/) with a checkpoint or a file of weights against world.py, and counts by kind what was done right.

Start at judge. What always holds: of a task file beside this one only faults are shown, of any other only counts, so that
whoever tends the generator does not see what the evaluation holds.

    python3 play.py --run first development/single.jsonl --show 20
"""

import argparse
import collections
import json
import os
from pathlib import Path

import grammar
from world import World

TURNS_MAX = 8
PATHS = ("path", "from", "to")


def fits(value, wanted):
    """Whether a value is the wanted one, or has what is wanted; a line feed at a text's end makes no difference."""
    if isinstance(wanted, dict) and set(wanted) == {"has"}:
        return isinstance(value, str) and all(part in value for part in wanted["has"])
    if isinstance(value, str) and isinstance(wanted, str):
        return value.rstrip("\n") == wanted.rstrip("\n")
    return value == wanted


def plain(key, value):
    """A path without what makes no difference to it."""
    return value.removeprefix("./").rstrip("/") if key in PATHS and isinstance(value, str) else value


def made(calls, wanted, any_order):
    """Whether the wanted calls are among those made, in order unless that does not matter."""
    at = 0
    for name, args in wanted:
        found = [nth for nth in range(0 if any_order else at, len(calls)) if calls[nth][0] == name and
                 all(key in calls[nth][1] and fits(plain(key, calls[nth][1][key]), plain(key, value)) for key, value in args.items())]
        if not found:
            return False
        at = found[0] + 1
    return True


def judge(expect, world, calls, said):
    if expect.get("refuses"):
        return not calls and bool(said.strip())
    ways = ([expect["calls"]] if "calls" in expect else []) + expect.get("calls_any", [])
    if ways and not any(made(calls, way, expect.get("any_order", False)) for way in ways):
        return False
    for path, wanted in expect.get("files", {}).items():
        place = world.root / path
        if not place.is_file() or not fits(place.read_text(), wanted):
            return False
    if any((world.root / path).exists() for path in expect.get("gone", [])):
        return False
    if not all(text.strip() in said for text in expect.get("says", [])):
        return False
    return "says_any" not in expect or any(text in said for text in expect["says_any"])


def run(player, row):
    """The calls that were made and what was said in the end."""
    world, calls = World(row.get("setup", {})), []
    messages, said = [{"user": [row["task"]]}], ""
    try:
        for turn in range(TURNS_MAX):
            reply = player.reply({"tools": list(grammar.CALLS), "messages": messages})
            try:
                answer = json.loads(reply)
            except ValueError:
                break
            if "say" in answer or not answer.get("calls"):
                said = answer.get("say", "")
                break
            call = answer["calls"][0]
            calls.append((call["name"], call["args"]))
            if call["name"] == "SYS_EXIT":
                said = str(call["args"].get("result", ""))
                break
            outcome = world.call(call["name"], call["args"])
            messages += [{"assistant": reply}, {"user": [f"[result c{turn}-0 {call['name']}]\n" + json.dumps(outcome, ensure_ascii=False)]}]
        return judge(row["expect"], world, calls, said), calls, said
    finally:
        world.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--run", default="first")
    parser.add_argument("--weights", help="a file of weights in the place of a run")
    parser.add_argument("--cache", default="~/.cache/aos-nano")
    parser.add_argument("--count", type=int, default=1000, help="tasks of each file")
    parser.add_argument("--voices", type=int, default=4, help="numberings of the slots in which a prompt is read")
    parser.add_argument("--show", type=int, default=0, help="faults to print of each file")
    options = parser.parse_args()
    import torch

    from evaluate import Player
    torch.set_num_threads(1)
    player = Player(Path(options.weights or os.path.expanduser(options.cache) + "/" + options.run), voices=options.voices)
    print(player.told)
    for file in map(Path, options.files):
        totals, faults = collections.Counter(), []
        for line in file.read_text().splitlines()[:options.count]:
            row = json.loads(line)
            right, calls, said = run(player, row)
            for name in (row["kind"], file.stem):
                totals[name, "of"] += 1
                totals[name, "right"] += right
            if not right:
                faults.append(f"- {row['task']!r}\n    made {calls} said {said!r}")
        for name in dict.fromkeys([*(name for name, _ in totals if name != file.stem), file.stem]):
            right, of = totals[name, "right"], totals[name, "of"]
            print(f"{name:16} {right:4} of {of:4}  {100 * right / of:5.1f} %", flush=True)
        if Path(__file__).parent in file.resolve().parents:
            print(*faults[:options.show], sep="\n")


if __name__ == "__main__":
    main()
