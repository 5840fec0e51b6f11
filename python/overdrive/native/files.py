"""Files that the package writes."""
from __future__ import annotations

import errno
import os
import stat


def _others_may_write(folder: str | bytes) -> bool:
    try:
        return bool(os.stat(folder).st_mode & stat.S_IWOTH)
    except OSError:
        return False  # opening the file then tells the reason


def write_text(text: str, file: str | os.PathLike[str]) -> None:
    """Writes ``text`` into ``file``, as ``open(file, "w")`` would; but in a folder that others may write, such as /tmp, a
    link or a file of another user may wait under the name, and is an OSError. Nothing behind it is touched."""
    path = os.fspath(file)
    shared = _others_may_write(os.path.dirname(path) or os.curdir)
    # Cut only when the file is known to be the user's own.
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_NOFOLLOW if shared else 0)
    with open(os.open(path, flags, 0o666), "w", encoding="utf-8") as out:
        about = os.fstat(out.fileno())
        if shared and about.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "another user's file in a folder that others may write", path)
        if stat.S_ISREG(about.st_mode):
            os.ftruncate(out.fileno(), 0)
        out.write(text)
