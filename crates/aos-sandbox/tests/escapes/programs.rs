//! Programs that are not granted, and what is left for a person to run.

use super::How::{Narrow, NarrowPy, Sh};
use super::{Attempt, GRANTED, GRANTS, MEMORY, NAMESPACES, attempt};

/// In the order in which the document lists them.
pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt(
        "an interpreter's own file calls",
        NAMESPACES,
        Sh(
            "/usr/bin/python3 -c 'import sys; print(open(sys.argv[1]).read())' \"$1\"; perl -e 'open F, shift; print <F>' \"$1\"; awk '{print}' \"$1\"",
        ),
        MEMORY,
    ),
    attempt(
        "a program that is not granted",
        GRANTS,
        Narrow("grep x /etc/os-release && echo ESCAPED; /usr/bin/grep x /etc/os-release && echo ESCAPED"),
        GRANTED,
    ),
    attempt(
        "env, sh -c and exec round the grants",
        GRANTS,
        Narrow(
            "env grep x /etc/os-release && echo ESCAPED; sh -c 'grep x /etc/os-release' && echo ESCAPED; exec grep x /etc/os-release",
        ),
        GRANTED,
    ),
    attempt(
        "time and an interpreter's own calls round the grants",
        GRANTS,
        NarrowPy(
            "import subprocess\nwhat = ['grep', '-q', 'x', '/etc/os-release']\ndef starts(*argv):\n  if subprocess.run(argv, stdin=subprocess.DEVNULL).returncode == 0: return argv\n  raise OSError()\ndef becomes(how):\n  pid = os.fork()\n  if pid == 0:\n    try: how()\n    finally: os._exit(126)\n  if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0: return how\n  raise OSError()\ntries(lambda: becomes(lambda: os.execvp('grep', what)), lambda: becomes(lambda: os.execv('/usr/bin/grep', what)), lambda: starts(*what), lambda: starts('time', *what), lambda: starts('bash', '-c', 'time ' + ' '.join(what)), lambda: starts('perl', '-e', 'exec(@ARGV) or exit 9', *what), lambda: starts('perl', '-e', 'exit(system(@ARGV) != 0)', *what), lambda: starts('sh', '-c', ' '.join(what)), lambda: os.posix_spawn('/usr/bin/grep', what, {}))",
        ),
        GRANTED,
    ),
    attempt(
        "a copy of a program",
        GRANTS,
        Narrow(
            "cp /usr/bin/cat c && chmod +x c && ./c /etc/os-release && echo ESCAPED; cp /usr/bin/cat /tmp/c && chmod +x /tmp/c && /tmp/c /etc/os-release && echo ESCAPED",
        ),
        GRANTED,
    ),
    attempt(
        "a file without a name (memfd_create, execveat)",
        "seccomp allow-list, granted programs only, noexec",
        NarrowPy(
            "calls(('memfd_create', b'x', 0), ('memfd_create', b'x', 2))\nargs = (ctypes.c_char_p * 3)(b'cat', b'/etc/os-release', None)\nfor folder in ('/workspace', '/tmp', '/dev/shm'):\n  shutil.copy('/usr/bin/cat', folder + '/c'); os.chmod(folder + '/c', 0o755)\n  f = os.open(folder + '/c', os.O_RDONLY); os.remove(folder + '/c')\n  if os.fork() == 0: l.syscall(N['execveat'], f, b'', args, None, 0x1000); os._exit(99 if ctypes.get_errno() == errno.EACCES else 98)\n  if os.waitstatus_to_exitcode(os.wait()[1]) != 99: print('ESCAPED', folder)",
        ),
        GRANTED,
    ),
    attempt(
        "the loader as a launcher",
        GRANTS,
        Narrow(
            "cp /usr/bin/cat c; for l in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do test -e $l && $l ./c /etc/os-release && echo ESCAPED; done",
        ),
        GRANTED,
    ),
    attempt(
        "a program among the libraries",
        GRANTS,
        Narrow(
            "for p in /usr/lib/git-core/git /usr/lib/gcc/*/*/cc1 /usr/lib/apt/methods/* /usr/lib/jvm/*/bin/java /usr/lib/llvm-*/bin/clang /usr/libexec/* /usr/lib/systemd/systemd-*; do test -f $p || continue; $p --version < /dev/null; test $? -ge 126 || echo ESCAPED $p; done",
        ),
        GRANTED,
    ),
    attempt(
        "the loader for a program among the libraries",
        GRANTS,
        Narrow(
            "for l in /lib64/ld-linux-x86-64.so.2 /lib/ld-linux-aarch64.so.1; do test -e $l || continue; for p in /usr/lib/git-core/git /usr/lib/gcc/*/*/cc1 /usr/lib/apt/methods/* /usr/lib/llvm-*/bin/clang /usr/libexec/* /usr/lib/systemd/systemd-*; do test -f $p || continue; $l $p --version < /dev/null; test $? -ge 126 || echo ESCAPED $p; done; done",
        ),
        GRANTED,
    ),
    attempt(
        "a script with its own interpreter",
        GRANTS,
        Narrow(
            "printf '#!/usr/bin/python3\\nprint(\"ESCAPED\")\\n' > s && chmod +x s && ./s; printf '#!/bin/sh\\necho ESCAPED\\n' > t && chmod +x t && ./t",
        ),
        GRANTED,
    ),
    attempt(
        "a planted library (LD_PRELOAD)",
        GRANTS,
        Narrow(
            "for at in . /tmp /dev/shm /shelf; do test $at = /shelf || cp /shelf/evil.so $at/evil.so; LD_PRELOAD=$at/evil.so cat /etc/os-release; done; echo $PWD/evil.so > /etc/ld.so.preload && echo ESCAPED",
        ),
        GRANTED,
    ),
    attempt(
        "planted git hooks and settings",
        "they run inside, behind the same walls",
        Sh(
            "git init -q . && git config user.email a@b && git config user.name a && git config alias.x \"!cat '$1'\" && printf '#!/bin/sh\\ncat \"%s\"\\n' \"$1\" > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit; git x; git commit -q --allow-empty -m x",
        ),
        "git --version > /dev/null && echo ok",
    ),
    attempt(
        "a planted shell profile",
        "a home of its own in each run",
        // Whoever logs in afterwards, in a run of its own, is beside it.
        Sh("echo 'echo ESCAPED' | tee .profile .bashrc .bash_profile ~/.profile ~/.bashrc /tmp/.profile > /dev/null"),
        "sh -l -c 'echo ok'",
    ),
];
