"""How our own processes are started: the launcher that hosts run, the daemon, a single answer.

Nothing here is loaded while a daemon answers. Every child runs the package that this module
belongs to, whatever else is installed, so that client and daemon have one version.
"""

# A hook that finds no daemon loads this module; pathlib would cost it 8 ms.
# ruff: noqa: PTH100, PTH101, PTH114, PTH118, PTH120
from __future__ import annotations

import os
import sys
import time

PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder that holds the package."""

LOCK_FD = 3  # the first after stdin, stdout and stderr

# A folder that site knows keeps its place, so that nothing beside the package hides a standard
# module; a source tree or a plugin's folder goes in front.
_CODE = (
    "import sys; p = sys.argv[1]; p in sys.path or sys.path.insert(0, p); "
    "from prompt_rag.daemon import main; main(sys.argv[2:])"
)

_PROGRAM = (
    "import sys; p = sys.argv.pop(1); p in sys.path or sys.path.insert(0, p); "
    "from prompt_rag.__main__ import main; main()"
)

_SHEBANG_BYTES = 126  # Linux before 5.1 reads 127 bytes of the first line, newline included


def launcher(python: str, package_parent: str, home: str) -> bytes:
    """Return an executable file that runs the hook: ``launcher --host HOST``.

    Its own path can stay the same across upgrades; what it says changes with the interpreter and
    the package. ``-I -S`` keep the environment, the working folder and site-packages out, which
    is quicker than a plain start. It ends with 0 and in silence even where the package is gone.
    """
    code = (
        "import sys\n"
        "try:\n"
        f"    sys.path.append({package_parent!a})\n"
        "    from prompt_rag.hook import main\n"
        f"    main(['--home', {home!a}] + sys.argv[1:])\n"
        "except BaseException:\n"
        "    pass\n"
    )
    first = f"#!{python} -IS"
    plain = python.isascii() and python.isprintable() and " " not in python
    if plain and len(first) <= _SHEBANG_BYTES:
        return f"{first}\n{code}".encode()
    import shlex  # loads re

    # The kernel cannot say this path: a shell can. It costs a millisecond.
    line = f'#!/bin/sh\nexec {shlex.quote(python)} -ISc {shlex.quote(code)} "$@"\n'
    return line.encode("utf-8", "surrogateescape")


def take_lock(folder: str, name: str) -> int:
    """Return a descriptor that holds the lock ``name`` in ``folder``, -1 where another holds it.

    The folder is created, and made private where it is ours. Raises OSError.
    """
    import fcntl  # absent on Windows

    from prompt_rag import fsio

    fsio.private_folder(folder)
    if os.path.islink(folder):
        raise PermissionError(f"{folder} is a link")
    os.chmod(folder, fsio.FOLDER_MODE)
    path = os.path.join(folder, name)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(path, flags, fsio.FILE_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return -1
    except BaseException:
        os.close(fd)
        raise
    return fd


def command(home: str, *arguments: str) -> list[str]:
    """Return the command line of the daemon of ``home``."""
    # Not -I: it would hide the packages of an installation for one user.
    return [sys.executable, "-EP", "-c", _CODE, PARENT, "--home", home, *arguments]


def program(*arguments: str) -> list[str]:
    """Return the command line that runs ``prompt-rag`` with ``arguments``."""
    return [sys.executable, "-EP", "-c", _PROGRAM, PARENT, *arguments]


def detached(home: str, lock_fd: int) -> None:
    """Start the daemon of ``home`` in a session of its own and leave it; it inherits the lock.

    Two forks leave no process of ours between it and the system; it gets no other descriptor
    than the lock, and no folder to stand in the way of being unmounted. Raises OSError.
    """
    line = command(home, "--lock-fd", str(LOCK_FD))
    child = os.fork()
    if child == 0:  # pragma: no cover  (no tracer follows; tests/process looks at the result)
        try:
            os.setsid()
            if os.fork() == 0:
                _become(line, lock_fd)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _become(line: list[str], lock_fd: int) -> None:  # pragma: no cover  (as above)
    if lock_fd == LOCK_FD:
        os.set_inheritable(lock_fd, True)  # noqa: FBT003  (it takes no keyword)
    else:
        os.dup2(lock_fd, LOCK_FD)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(LOCK_FD + 1, min(os.sysconf("SC_OPEN_MAX"), 65536))
    os.chdir("/")
    os.execv(line[0], line)  # noqa: S606  (a list of arguments; there is no shell to miss)


def once(home: str, data: bytes, deadline: float) -> bytes:
    """Return the frame that a process made for this one question answers to the frame ``data``.

    It is killed at the ``deadline`` (an instant of ``time.monotonic()``), in native code too.

    Raises TimeoutError at the deadline, OSError where it cannot be started.
    """
    import subprocess  # costs a hundredth of loading the model

    with subprocess.Popen(
        command(home, "--once"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=os.path.sep,
    ) as process:
        try:
            return process.communicate(data, timeout=max(0.0, deadline - time.monotonic()))[0]
        except subprocess.TimeoutExpired:
            raise TimeoutError from None
        finally:
            process.kill()
