"""A small world that answers calls as the kernel would, for a quick look at tasks before the real evaluation.

Start at World.call. What always holds: results have the kernel's shapes; nothing leaves a temporary folder, and of
commands only a few harmless ones run at all. The evaluation that counts goes through the real kernel; this one is for
the hours of training.
"""

import fnmatch
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from clause import error, success

HARMLESS = {"wc", "sort", "head", "tail", "cat", "ls", "echo", "mkdir", "cp", "mv", "touch", "diff", "date", "grep", "uniq", "cut", "tr",
            "seq", "printf", "pwd", "whoami", "uname", "nproc", "basename", "dirname", "sha256sum", "md5sum", "tac", "rev", "nl", "expr",
            "hostname", "true", "false", "stat", "file", "du", "df", "id", "sh", "python3", "rm", "chmod", "find", "awk", "sed", "test"}


class World:
    """What a task's setup holds, and what has become of it."""

    def __init__(self, setup):
        self.root = Path(tempfile.mkdtemp(prefix="nano-world-"))
        for path, content in setup.get("files", {}).items():
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_text(content)
        self.memory = [dict(memory) for memory in setup.get("memory", [])]
        self.pages, self.agents = setup.get("pages", {}), setup.get("agents", [])

    def close(self):
        shutil.rmtree(self.root, ignore_errors=True)

    def place(self, path):
        """A path below the root, or the error for what is not."""
        if path.startswith("/") or ".." in path.split("/"):
            return None, error("EPERM", f"`{path}` is outside the workspace: " + ("it is absolute" if path.startswith("/") else "it holds `..`"))
        return self.root / path, None

    def call(self, name, args):
        try:
            known = getattr(self, name.lower(), None)
            return known(args) if known else self.other(name)
        except FileNotFoundError:
            return error("ENOENT", f"no file or folder `{args.get('path') or args.get('from')}`")
        except KeyError as lacking:
            return error("EINVAL", f"`{lacking.args[0]}` is missing")
        except (IsADirectoryError, NotADirectoryError, FileExistsError, UnicodeDecodeError, ValueError) as fault:
            return error("EINVAL", str(fault)[:80])

    def other(self, name):
        made = {"SPAWN_AGENT": {"pid": 40}, "WAIT": {"pid": 40, "exit_code": 0, "result": "done"}, "FS_WATCH": {"watch_id": "w1"},
                "SYS_SCHEDULE": {"timer_id": "t1", "next_at": "2026-11-22T10:00:00.000Z"}, "ASK_USER": {"answer": "yes"}, "SLEEP": {"slept_s": 1},
                "RECV_MSG": {"messages": []}, "SEND_MSG": {"message_id": "m1"}}
        return success(**made.get(name, {}))

    def fs_read(self, args):
        place, fault = self.place(args["path"])
        if fault:
            return fault
        content = place.read_text()
        return success(content=content, size=len(content), truncated=False)

    def fs_write(self, args):
        place, fault = self.place(args["path"])
        if fault:
            return fault
        place.parent.mkdir(parents=True, exist_ok=True)
        before = place.read_text() if args.get("mode") == "append" and place.exists() else ""
        place.write_text(before + args["content"])
        return success(bytes=len(args["content"].encode()))

    def fs_edit(self, args):
        place, fault = self.place(args["path"])
        if fault:
            return fault
        text = place.read_text()
        for nth, edit in enumerate(args["edits"]):
            if text.count(edit["old"]) != 1:
                return error("EINVAL", f"edits[{nth}]: its `old` text occurs {text.count(edit['old'])} times in `{args['path']}`, it must occur exactly once")
            text = text.replace(edit["old"], edit["new"])
        place.write_text(text)
        return success(diff="")

    def fs_list(self, args):
        place, fault = self.place(args.get("path", "."))
        if fault:
            return fault
        glob, entries = args.get("glob"), []
        for found in sorted(place.rglob("*") if glob else place.iterdir()):
            below = str(found.relative_to(place))
            if glob and not (fnmatch.fnmatch(found.name, glob.removeprefix("**/")) if glob.startswith("**/") or "/" not in glob else fnmatch.fnmatch(below, glob)):
                continue
            entries.append({"path": str(found.relative_to(self.root)), "kind": "folder" if found.is_dir() else "file", "size": 1, "mtime": "x"})
        return success(entries=entries, truncated=False)

    def fs_search(self, args):
        place, fault = self.place(args.get("path", "."))
        if fault:
            return fault
        if not place.exists():
            raise FileNotFoundError
        pattern, hits = re.compile(args["pattern"]), []
        for found in sorted([place] if place.is_file() else place.rglob("*")):
            if found.is_file() and ("glob" not in args or fnmatch.fnmatch(found.name, args["glob"].removeprefix("**/"))):
                hits += [{"path": str(found.relative_to(self.root)), "line": nth, "text": line}
                         for nth, line in enumerate(found.read_text().splitlines(), 1) if pattern.search(line)]
        return success(matches=hits, truncated=False)

    def fs_delete(self, args):
        place, fault = self.place(args["path"])
        if fault:
            return fault
        shutil.rmtree(place) if place.is_dir() else place.unlink()
        return success()

    def fs_move(self, args):
        (place, fault), (to, fault_to) = self.place(args["from"]), self.place(args["to"])
        if fault or fault_to:
            return fault or fault_to
        if to.exists():
            return error("EEXIST", f"`{args['to']}` exists already")
        to.parent.mkdir(parents=True, exist_ok=True)
        place.rename(to)
        return success()

    def exec_cmd(self, args):
        command = args["cmd"]
        words = re.split(r"[|;&]+", command)
        if not all(word.strip().split(" ")[0] in HARMLESS for word in words) or re.search(r"(^|[\s'\"=>])(/|~|\.\.)|\$|`", command):
            return success(stdout="", stderr=f"sh: 1: {command.split(' ')[0]}: not found\n", exit_code=127, changed=[])
        done = subprocess.run(["sh", "-c", command], cwd=self.root, capture_output=True, text=True, timeout=5, stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin"})
        return success(stdout=done.stdout, stderr=done.stderr, exit_code=done.returncode, changed=[])

    def mem_write(self, args):
        self.memory = [memory for memory in self.memory if memory["key"] != args["key"]] + [args]
        return success(id="m1")

    def mem_read(self, args):
        words = set(re.findall(r"\w+", args["query"].lower()))
        scored = [(len(words & set(re.findall(r"\w+", (memory["key"] + " " + memory["value"]).lower()))), memory) for memory in self.memory]
        found = [memory for score, memory in sorted(scored, key=lambda pair: -pair[0]) if score][:6]
        return success(hits=[{"id": "m1", "key": memory["key"], "value": memory["value"], "score": .5, "at": "x", "source": {}} for memory in found])

    def mem_forget(self, args):
        kept = [memory for memory in self.memory if memory["key"] != args["key"]]
        forgotten, self.memory = len(self.memory) - len(kept), kept
        return success(forgotten=forgotten) if forgotten else error("ENOENT", f"nothing is remembered under `{args['key']}`")

    def net_fetch(self, args):
        body = self.pages.get(args["url"])
        if body is None:
            return error("EIO", "the host is not known")
        return success(status=200, headers={}, body=body, truncated=False)
