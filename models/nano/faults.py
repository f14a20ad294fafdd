"""Errors as the kernel and its drivers word them, so that the model has seen their like. See aos-drivers/src/fs/error.rs."""

from clause import error


def absent(path):
    return error("ENOENT", f"no file or folder `{path.removeprefix('./')}`")


def denied(name, values):
    rule = values.pick(["default: deny", f"role {values.word()}: calls", f"deny: {name}", f"limits: {values.word()}",
                        f"role agent: {name} {values.word()}/**", f"labels: untrusted, {name}", "no rule allows it"])
    return error("EPERM", f"the policy denies {name}: {rule}")


def fault(name, args, values):
    """Something that can go wrong with this call."""
    path = args.get("path") or args.get("from") or ""
    kind = values.rng.random()
    if name.startswith("FS_") and (path.startswith("/") or path.startswith("../")):
        why = "it is absolute" if path.startswith("/") else "it holds `..`"
        return error("EPERM", f"`{path}` is outside the workspace: {why}")
    if kind < .25:
        return denied(name, values)
    if name in ("FS_READ", "FS_EDIT", "FS_DELETE", "FS_MOVE", "FS_LIST", "FS_SEARCH") and path and kind < .8:
        return absent(path)
    if name == "FS_EDIT":
        return error("EINVAL", f"edits[0]: its `old` text occurs {values.pick([0, 0, 2, 3])} times in `{path}`, it must occur exactly once")
    if name == "FS_MOVE":
        return error("EEXIST", f"`{args['to']}` exists already")
    if name in ("FS_READ", "FS_WRITE"):
        return error("EISDIR", f"`{path}` is a folder") if kind < .9 else error("ENOSPC", f"no space is left for `{path}`")
    if name == "NET_FETCH":
        return values.pick([error("EIO", f"the host of {args['url']} is not known"),
                            error("ETIMEDOUT", "no answer within 10 s"),
                            error("EPERM", f"a connection to {args['url'].split('/')[2]} is not opened: it is private")])
    if name == "SEND_MSG":
        if "to" in args:
            return error("ESRCH", f"no live process is named `{args['to']}`")
        return error("ESRCH", f"process {args['to_pid']} has ended")
    if name in ("WAIT", "KILL"):
        return error("ECHILD", "no child to wait for") if name == "WAIT" else error("ESRCH", f"process {args['pid']} has ended")
    if name == "EXEC_CMD":
        return error("ETIMEDOUT", "the command ran past its 30 s")
    if name == "SYS_UNSCHEDULE":
        return error("ENOENT", f"no timer `{args['timer_id']}`")
    if name == "MEM_FORGET":
        return error("ENOENT", f"nothing is remembered under `{args['key']}`")
    return values.pick([error("EDQUOT", f"the budget of {values.rng.randint(1, 99)} calls is spent"),
                        error("EREJECTED", "refused by the person: " + values.simple()),
                        error("EAGAIN", f"the policy lets {name} no oftener: {values.rng.randint(1, 9)}/h"),
                        error("EIO", values.simple())])
