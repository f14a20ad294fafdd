//! Other processes, and more of everything than there is.

use super::How::{Py, Tight};
use super::{Attempt, LIMITS, MEMORY, PIDS, READS, RUNS, attempt};

/// In the order in which the document lists them.
pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt(
        "signals to the host",
        PIDS,
        Py("tries(lambda: os.kill(HOSTPID, 0), lambda: os.kill(HOSTPID, 9), lambda: os.killpg(HOSTPID, 9))"),
        "sleep 100 & kill $! && echo ok",
    ),
    attempt(
        "killing the first process",
        "pid namespace, Landlock",
        Py("tries(lambda: os.kill(1, 9), lambda: os.kill(1, 19))"),
        RUNS,
    ),
    attempt(
        "a fork bomb",
        LIMITS,
        Tight(
            "n = 0\nwhile n < 400:\n  try:\n    if os.fork() == 0: time.sleep(60)\n    n += 1\n  except OSError: break\nprint('ESCAPED') if n > 64 else None\nsys.stdout.flush()\nos._exit(0)",
        ),
        RUNS,
    ),
    attempt(
        "a memory bomb",
        LIMITS,
        Tight(
            "x = []\ntry:\n  while True: x.append(bytearray(16 << 20)); print('ESCAPED') if len(x) > 40 else None\nexcept MemoryError: pass",
        ),
        MEMORY,
    ),
    attempt(
        "a disk bomb",
        LIMITS,
        Tight(
            "n = 0\ntry:\n  f = open('/tmp/x', 'wb')\n  while n < 64: f.write(b'x' * (1 << 20)); f.flush(); n += 1\n  print('ESCAPED')\nexcept OSError: pass",
        ),
        READS,
    ),
    attempt(
        "a descriptor bomb",
        LIMITS,
        Tight(
            "x = []\ntry:\n  while len(x) < 4000: x.append(os.open('/dev/null', 0))\n  print('ESCAPED')\nexcept OSError: pass",
        ),
        READS,
    ),
    attempt(
        "a flood of output",
        LIMITS,
        Tight("sys.stdout.write('x' * (8 << 20))\nsys.stdout.flush()\nprint('ESCAPED')"),
        RUNS,
    ),
];
