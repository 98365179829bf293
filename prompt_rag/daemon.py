"""The resident process: it keeps the model and the index warm and answers the hook.

There is at most one for an index: it holds a lock for as long as it listens, taken by whoever
starts it and inherited (see :mod:`prompt_rag.launch`), or taken by itself. The lock's file is
never removed, and the process id inside is for people only. The connections are the business of
:mod:`prompt_rag.server`, the answers that of :mod:`prompt_rag.worker`.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import fcntl
import os
import signal
from pathlib import Path

from prompt_rag import fsio, launch, wire
from prompt_rag.server import IDLE_SECONDS, LOG, Daemon
from prompt_rag.worker import Answerer, answer_once, told


def main(arguments: list[str]) -> None:
    """Be the daemon of ``--home``, or with ``--once`` answer the frame on stdin; then end.

    ``--lock-fd`` is the descriptor of the lock that was inherited. The process ends here, without
    taking down the interpreter below threads that may be inside native code.
    """
    parser = argparse.ArgumentParser(prog="prompt_rag.daemon")
    parser.add_argument("--home", required=True)
    parser.add_argument("--lock-fd", type=int, default=-1)
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args(arguments)
    os.umask(0o077)
    code = 0
    try:
        if options.once:
            _once(options.home)
        else:
            code = _stay(options.home, options.lock_fd)
    finally:
        os._exit(code)


def _make(home: str, *, settle_later: bool = False) -> Answerer:
    from prompt_rag import answer, config  # the worker's thread pays for them, not the socket

    return answer.Answerer(config.load(Path(home)), settle_later=settle_later)


def _stay(home: str, lock_fd: int) -> int:
    folder = wire.runtime_folder(home)
    if lock_fd < 0:
        lock_fd = launch.take_lock(folder, wire.LOCK)
    if lock_fd < 0:
        return 1
    fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ours already unless somebody lies
    os.set_inheritable(lock_fd, False)  # noqa: FBT003  (it takes no keyword)
    os.ftruncate(lock_fd, 0)
    os.pwrite(lock_fd, b"%d\n" % os.getpid(), 0)  # for a person who looks; nothing reads it
    with contextlib.suppress(OSError):
        # A crash in native code leaves its trace; the file stays open for as long as we live.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        faulthandler.enable(os.open(f"{folder}/{LOG}", flags, fsio.FILE_MODE))
    idle = wire.seconds(wire.settings(home), wire.IDLE_KEY, IDLE_SECONDS)
    daemon = Daemon(home, lambda: _make(home, settle_later=True), lock_fd, idle_seconds=idle)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: daemon.order("it was told to end"))
    try:
        daemon.serve()
    except BaseException as error:
        daemon.log(f"broken: {told(error)}")
        raise
    return 0


def _once(home: str) -> None:
    reply_to = os.dup(1)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)  # whatever libraries print, the answer stays whole
    with open(0, "rb", closefd=False) as file:
        data = file.read()
    reply = answer_once(lambda: _make(home), wire.decode(data[4:]))
    view = memoryview(wire.frame(reply))
    while view:
        view = view[os.write(reply_to, view) :]
