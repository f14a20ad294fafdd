#!/usr/bin/env python3
"""Checks `aos audit export` without AOS: reads the lines, computes every hash again, prints the last entry and its hash.

    aos audit export | python3 verify.py            # from the first entry on
    aos audit export --after 93 | python3 verify.py 93:9a23…    # from an entry whose hash is known
"""
import hashlib
import json
import sys
from datetime import datetime


def number(value):
    return value.to_bytes(8, "big")


lsn, head = 0, bytes(32)
unmarked = {}  # sealed entries of each process that no `pruned` entry has accounted for yet
if len(sys.argv) > 1:
    known, hexed = sys.argv[1].split(":")
    lsn, head = int(known), bytes.fromhex(hexed)
began = lsn
for text in sys.stdin:
    line = json.loads(text)
    if line["lsn"] != lsn + 1:
        sys.exit(f"ALTERED: entry {lsn + 1} is missing")
    lsn = line["lsn"]
    if line["type"] == "sealed":  # pruned: only the digest of what it said is left
        digest = bytes.fromhex(line["digest"])
        unmarked[line["pid"]] = unmarked.get(line["pid"], 0) + 1
    else:
        body = b'{"type":' + text.rstrip("\n").split(',"type":', 1)[1].encode()
        kind = line["type"].encode()
        at = round(datetime.fromisoformat(line["at"].replace("Z", "+00:00")).timestamp() * 1000)
        said = number(at) + number(line.get("cause", 0)) + bytes([len(kind)]) + kind + body
        digest = hashlib.sha256(said).digest()
    if line["type"] == "pruned" and sum(unmarked.pop(pid, 0) for pid in line["pids"]) > line["entries"]:
        sys.exit(f"ALTERED: entry {lsn} says that fewer were pruned than are sealed")
    head = hashlib.sha256(head + number(lsn) + number(line["pid"]) + digest).digest()
    if "hash" in line and line["hash"] != head.hex():
        sys.exit(f"ALTERED: entry {lsn} is not what was written")
if unmarked:
    sys.exit(f"ALTERED: entries of {sorted(unmarked)} are sealed, and nothing says that they were pruned")
if lsn == began:
    sys.exit("nothing came: is it the export that failed?")
print(f"intact: {lsn}:{head.hex()}")
