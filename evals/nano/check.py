#!/usr/bin/env python3
"""Checks the form of the tasks beside this file and prints how many there are of each kind.

Names of calls and of their arguments are read from the definition in crates/aos-abi, so that they cannot drift apart.
"""
import collections
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
ARGS = HERE.parents[1] / "crates/aos-abi/src/syscall/args.rs"
SETUP = {"files": dict, "memory": list, "pages": dict, "agents": list}
EXPECT = {"calls": list, "calls_any": list, "any_order": bool, "files": dict, "gone": list,
          "says": list, "says_any": list, "refuses": bool}
# steps of a task of this kind; None: any
STEPS = {"two_step": 2, "three_step": 3, "refuse": 0, "injection": None}


def known_calls():
    text = ARGS.read_text(encoding="utf-8").split("\nargs! {\n", 1)[1]
    calls = {}
    for name, body in re.findall(r"^    (\w+) \{\n(.*?)^    \}", text, re.S | re.M):
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper()
        calls[snake] = set(re.findall(r"^        (\w+): ", body, re.M))
    for part in ("EDIT", "PROPOSED_CALL", "BUDGET_ARGS"):
        del calls[part]
    calls["THREAD_ATTACH"] = calls["THREAD_DETACH"] = calls.pop("THREAD")
    return calls


def matcher(value):
    """{"has": [...]}: the text must contain each of these."""
    return isinstance(value, dict) and set(value) == {"has"} and value["has"] and texts(value["has"])


def texts(value):
    return isinstance(value, list) and all(isinstance(x, str) and x for x in value)


def faults(row, calls):
    extra = set(row) - {"id", "kind", "steps", "task", "setup", "expect"}
    if extra:
        yield f"unknown fields {sorted(extra)}"
    if not re.fullmatch(r"w\d{3}", row.get("id", "")):
        yield "the id is not w and three digits"
    if not isinstance(row.get("task"), str) or not row["task"].strip():
        yield "no task"
    want = STEPS.get(row["kind"], 1)
    if not isinstance(row.get("steps"), int) or (want is not None and row["steps"] != want):
        yield f"steps is {row.get('steps')}, expected {want}"
    setup, expect = row.get("setup", {}), row.get("expect", {})
    for part, fields in ((setup, SETUP), (expect, EXPECT)):
        for key, value in part.items():
            if key not in fields:
                yield f"unknown field {key}"
            elif not isinstance(value, fields[key]):
                yield f"{key} is of the wrong type"
    for memory in setup.get("memory", []):
        if not {"key", "value"} <= set(memory) <= calls["MEM_WRITE"]:
            yield "a memory is not what MEM_WRITE takes"
    pids = set()
    for agent in setup.get("agents", []):
        if set(agent) != {"pid", "name"} or not isinstance(agent["pid"], int):
            yield "an agent is not a pid and a name"
        pids.add(agent.get("pid"))
    for url in setup.get("pages", {}):
        if not url.startswith("http://"):
            yield f"page {url} is not http"
    ways = ([expect["calls"]] if "calls" in expect else []) + expect.get("calls_any", [])
    for call in (c for way in ways for c in way):
        if not (isinstance(call, list) and len(call) == 2 and isinstance(call[1], dict)):
            yield f"{call} is not a name with arguments"
            continue
        name, args = call
        if name not in calls:
            yield f"no call {name}"
            continue
        if set(args) - calls[name]:
            yield f"{name} takes no {sorted(set(args) - calls[name])}"
        for key, value in args.items():
            if isinstance(value, dict) and not matcher(value):
                yield f"{name} {key}: {value} is no matcher"
        if name == "SEND_MSG" and args.get("to_pid") not in pids:
            yield f"no agent {args.get('to_pid')} is set up"
        if name == "MEM_FORGET" and args.get("key") not in {m["key"] for m in setup.get("memory", [])}:
            yield f"no memory {args.get('key')} is set up"
    for path, value in expect.get("files", {}).items():
        if not isinstance(value, str) and not matcher(value):
            yield f"{path}: neither a content nor a matcher"
    for path in expect.get("gone", []):
        if path not in setup.get("files", {}):
            yield f"{path} is to go but was never there"
    for path in [*setup.get("files", {}), *expect.get("files", {}), *expect.get("gone", [])]:
        if path.startswith("/") or ".." in path.split("/"):
            yield f"{path} lies outside the workspace"
    for key in ("says", "says_any"):
        if key in expect and not (expect[key] and texts(expect[key])):
            yield f"{key} is not a list of texts"
    if row["kind"] == "refuse":
        if expect != {"refuses": True}:
            yield "a refusal expects nothing but refuses"
    elif "refuses" in expect or not set(expect) - {"any_order"}:
        yield "nothing to judge by"


def main():
    calls, seen, counts, bad = known_calls(), {}, collections.Counter(), 0
    for path in sorted(HERE.glob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            row = json.loads(line)
            found = list(faults(row, calls))
            if row["kind"] != path.stem:
                found.append(f"kind {row['kind']} in {path.name}")
            for key in ("id", "task"):
                if (key, row[key]) in seen:
                    found.append(f"the same {key} as {seen[key, row[key]]}")
                seen[key, row[key]] = f"{path.name}:{number}"
            for fault in found:
                print(f"{path.name}:{number}: {fault}", file=sys.stderr)
            bad += len(found)
            counts[row["kind"]] += 1
    for kind, count in sorted(counts.items()):
        print(f"{kind:14} {count:4}")
    print(f"{'all':14} {sum(counts.values()):4}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
