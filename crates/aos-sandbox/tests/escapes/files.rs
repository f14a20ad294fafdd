//! Files outside, by their paths and by links.

use super::How::{Py, Races, Sh};
use super::{Attempt, NAMESPACES, READ_ONLY, READS, attempt};

/// In the order in which the document lists them.
pub(crate) const ATTEMPTS: &[Attempt] = &[
    attempt("a file outside by its path", NAMESPACES, Sh("cat \"$1\""), READS),
    attempt("a file outside by ..", NAMESPACES, Sh("cat \"../../../../../..$1\""), READS),
    attempt(
        "the host's passwords",
        NAMESPACES,
        Sh("for f in /etc/shadow /etc/gshadow /etc/sudoers; do cat $f && echo ESCAPED; done"),
        READS,
    ),
    attempt(
        "homes and state",
        NAMESPACES,
        Sh("for d in /root /home /var /run /srv /mnt /opt /boot; do ls $d/. && echo ESCAPED; done"),
        READS,
    ),
    attempt(
        "a symbolic link to a file outside",
        NAMESPACES,
        Sh("ln -s \"$1\" l; cat l"),
        "echo x > t; ln -s t l2; test \"$(cat l2)\" = x && echo ok",
    ),
    attempt("a symbolic link to the root", NAMESPACES, Sh("ln -s / r; cat \"r$1\""), READS),
    attempt("a hard link to a file outside", NAMESPACES, Sh("ln \"$1\" h && cat h"), "echo x > t; ln t h2 && echo ok"),
    attempt(
        "a hard link to a name that changes meanwhile",
        NAMESPACES,
        Py(
            "targets, done, d = [SECRET, '/usr/bin/env', '/shelf/note'] * 9999, False, os.open('.', 0)\nopen('own', 'w').write('own')\ndef turn():\n  while not done:\n    os.symlink(targets.pop(), 'new'); os.rename('new', 'name')\n    shutil.copy('own', 'new'); os.rename('new', 'name')\nt = threading.Thread(target=turn); t.start()\nlinked = n = 0\nwhile n < 3000 or not linked:\n  n += 1\n  try: os.link('name', 'got', src_dir_fd=d, dst_dir_fd=d, follow_symlinks=True)\n  except OSError: continue\n  linked += 1\n  if open('got', 'rb').read() != b'own': print('ESCAPED', n)\n  os.remove('got')\n  if len(targets) < 99: break\ndone = True; t.join()",
        ),
        "echo x > t4; ln t4 h5 && mv h5 h6 && echo ok",
    ),
    attempt(
        "a hard link to a system program",
        READ_ONLY,
        Sh("ln /usr/bin/env h && echo ESCAPED"),
        "echo x > t2; ln t2 h3 && echo ok",
    ),
    attempt(
        "a folder that becomes a link while a commit looks",
        "a commit follows no link",
        Races(
            "aim, n = os.path.dirname(SECRET) + '/aim', 0\nos.makedirs('dir', exist_ok=True)\nos.symlink(aim, 'link')\nwhile not os.path.exists('over'):\n  try:\n    # A commit puts a folder of its own where it meets the link.\n    if not os.path.islink('dir') and not os.path.islink('link'): os.rename('link', f'was{n}'); n += 1; os.symlink(aim, 'link')\n  except OSError: pass\n  for _ in range(50): l.syscall(N['renameat2'], -100, b'dir', -100, b'link', 2)",
        ),
        "echo x > t7; mkdir d7 && mv t7 d7 && echo ok",
    ),
];
