//! Other processes, and more of everything than there is.

use super::How::{Late, Py, Tight};
use super::{Attempt, LIMITS, MEMORY, PIDS, READS, RUNS, SECCOMP, TERMINAL, attempt};

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
        "blinding or slowing the first process",
        SECCOMP,
        Py(
            "r, p, a = struct.pack('QQ', 3, 3), struct.pack('i', 0), struct.pack('IIQiIQQQ', 48, 5, 0, 0, 0, 0, 0, 0)\ncalls(('prlimit64', 1, 7, r, 0), ('prlimit64', 1, 0, r, 0), ('setpriority', 0, 1, 19), ('setpriority', 1, 1, 19), ('setpriority', 2, 0, 19), ('setpriority', 2, os.getuid(), 19), ('ioprio_set', 1, 1, 0x6000), ('ioprio_set', 3, os.getuid(), 0x6000), ('sched_setaffinity', 1, 8, b'\\1' + b'\\0' * 7), ('sched_setscheduler', 1, 5, p), ('sched_setparam', 1, p), ('sched_setattr', 1, a, 0))",
        ),
        "nice -n 1 true && renice -n 19 $$ > /dev/null && ionice -c 3 -p $$ && taskset -p 1 $$ > /dev/null && prlimit --pid $$ --nofile=99 && ulimit -n 98 && echo ok",
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
        "a memory bomb whose watchman was told to look away",
        LIMITS,
        Tight(
            "try: resource.prlimit(1, resource.RLIMIT_NOFILE, (3, 3))\nexcept OSError: pass\nfor _ in range(8):\n  if os.fork() == 0:\n    x = bytearray(60 << 20); x[::4096] = b'1' * (15 << 10); time.sleep(9); os._exit(0)\ntime.sleep(9)\nprint('ESCAPED')",
        ),
        MEMORY,
    ),
    attempt(
        "a memory bomb in files on memory",
        LIMITS,
        Tight(
            "for i in range(8): open(f'/dev/shm/{i}', 'wb').write(b'x' * (7 << 20))\nx = bytearray(216 << 20); x[::4096] = b'1' * (54 << 10)\ntime.sleep(9)\nprint('ESCAPED')",
        ),
        MEMORY,
    ),
    attempt(
        "memory that belongs to no process",
        SECCOMP,
        Py(
            "m = mmap.mmap(-1, 4096)\na = ctypes.addressof(ctypes.c_char.from_buffer(m))\nb = ctypes.create_string_buffer(64)\ncalls(('semget', 0, 32000, 0o600), ('semctl', 0, 0, 0, 0), ('semop', 0, b, 1), ('semtimedop', 0, b, 1, 0), ('landlock_create_ruleset', struct.pack('QQQ', 0, 1, 0), 24, 0), ('landlock_add_rule', -1, 2, b, 0), ('seccomp', 1, 8, struct.pack('HxxxxxxQ', 0, 0)), ('madvise', ctypes.c_void_p(a), 4096, 21))",
        ),
        "/usr/bin/python3 -c \"import mmap, multiprocessing; multiprocessing.Semaphore(1).acquire(); mmap.mmap(-1, 4096).madvise(mmap.MADV_DONTNEED); print('ok')\"",
    ),
    attempt(
        "a memory bomb in page tables",
        LIMITS,
        Tight(
            "m = mmap.mmap(-1, 140 << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=mmap.PROT_READ)\nfor i in range(0, 140 << 30, 2 << 20): m[i]\ntime.sleep(9)\nprint('ESCAPED')",
        ),
        MEMORY,
    ),
    attempt(
        "a memory bomb behind a first thread that has ended",
        LIMITS,
        Tight(
            "def rest():\n  x = [bytearray(60 << 20) for _ in range(3)]\n  for y in x: y[::4096] = b'1' * (15 << 10)\n  time.sleep(9); print('ESCAPED'); sys.stdout.flush(); os._exit(0)\nfor _ in range(3):\n  if os.fork() == 0: threading.Thread(target=rest).start(); l.syscall(N['exit'], 0)\nfor _ in range(3): os.wait()",
        ),
        MEMORY,
    ),
    attempt(
        "a disk bomb",
        LIMITS,
        Tight(
            "n = 0\ntry:\n  f = open(os.environ['TMPDIR'] + '/x', 'wb')\n  while n < 64: f.write(b'x' * (1 << 20)); f.flush(); n += 1\n  print('ESCAPED')\nexcept OSError: pass",
        ),
        READS,
    ),
    attempt(
        "a descriptor bomb",
        LIMITS,
        Tight(
            "x = []\ntry:\n  while len(x) < 300: x.append(os.open('/dev/null', 0))\n  print('ESCAPED')\nexcept OSError: pass",
        ),
        READS,
    ),
    attempt(
        "a flood of output",
        LIMITS,
        Tight("sys.stdout.write('x' * (8 << 20))\nsys.stdout.flush()\nprint('ESCAPED')"),
        RUNS,
    ),
    attempt(
        "a bomb of terminals",
        LIMITS,
        Tight(
            "x = []\ntry:\n  while len(x) < 100: x.append(os.open('/dev/ptmx', os.O_RDWR | os.O_NOCTTY))\n  print('ESCAPED')\nexcept OSError: pass",
        ),
        TERMINAL,
    ),
    attempt(
        "a command that outlives its deadline",
        "limits, pid namespace",
        Late(
            "import signal\nfor s in range(1, 65):\n  try: signal.signal(s, signal.SIG_IGN)\n  except (OSError, ValueError): pass\nfor n in range(3):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n    os.chdir('.'); [os.close(f) for f in range(3)]\n    time.sleep(4); open('late', 'w'); os._exit(0)\nopen('began', 'w'); time.sleep(60)",
        ),
        "test -e began && sleep 2 && test ! -e late && echo ok",
    ),
];
