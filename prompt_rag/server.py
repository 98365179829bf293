"""The daemon's loop: one thread that owns all connections and never waits for one of them.

A connection brings one frame and gets one back. Answers come from a
:class:`~prompt_rag.worker.Worker`. A request whose deadline has passed, or whose client has hung
up, is dropped before it costs anything; a client that stalls only wastes its own time.

Between requests nothing runs but a look at the file system every half minute, and quicker ones
while edited notes are being synced. The daemon leaves when nobody has asked for long enough, or
when its socket, its index or its own code is gone.
"""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from prompt_rag import __version__, fsio, wire
from prompt_rag.domain import Reason
from prompt_rag.freshness import Freshness
from prompt_rag.worker import (
    LONGEST_QUEUE,
    LONGEST_WAIT,
    Answerer,
    Message,
    Request,
    Worker,
    abstention,
    deadline_of,
    told,
)

IDLE_SECONDS = 1800.0  # half an hour without a prompt: the person has gone
MOST_CONNECTIONS = 128  # half of what macOS lets a process open by default
READ_SECONDS = 1.0  # a client writes its frame in one go; slower ones are stuck
WRITE_SECONDS = 1.0
GRACE_SECONDS = 0.1  # after its deadline a client has gone; hanging up on it first would be a lie
CHECK_SECONDS = 30.0  # between two looks whether socket, index and code still exist
LEAVE_SECONDS = 2.0  # for what is under way when it is time to go
ACCEPT_PAUSE = 0.1  # seconds, when the system has no descriptor left
PIECE = 65536
LOG = "daemon.log"
LOG_BYTES = 1_000_000


class _Client:
    """One connection: a frame comes in, a frame goes out, and it is closed.

    ``until`` is the instant at which it is given up; ``request`` is set once it waits for one.
    """

    __slots__ = ("data", "reading", "request", "socket", "until")

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.until = time.monotonic() + READ_SECONDS
        self.reading = True
        self.data = bytearray()
        self.request: Request | None = None


class Daemon:
    """Serves one home. ``lock_fd`` holds the lock and is closed when the daemon leaves.

    Raises OSError where the socket cannot be made.
    """

    def __init__(
        self,
        home: str,
        make: Callable[[], Answerer],
        lock_fd: int,
        *,
        idle_seconds: float = IDLE_SECONDS,
        check_seconds: float = CHECK_SECONDS,
        longest_queue: int = LONGEST_QUEUE,
    ) -> None:
        self.home = home
        self.folder = Path(wire.runtime_folder(home))
        self._lock_fd = lock_fd
        self._idle_seconds = idle_seconds
        self._check_seconds = check_seconds
        self._started = self._last_request = time.monotonic()
        self._next_check = self._started + check_seconds
        self._accept_again = 0.0
        self._leave_by = 0.0
        self._order = ""
        self._index_seen = self._has_index()
        self._clients: dict[socket.socket, _Client] = {}
        self._asking: dict[Request, _Client] = {}
        self._path = self.folder / wire.SOCKET
        self._listener = self._listen()
        self._inode = self._path.lstat().st_ino
        self._wake_in, self._wake_out = socket.socketpair()
        for end in (self._wake_in, self._wake_out):
            end.settimeout(0)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_out, selectors.EVENT_READ, self._woken)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._worker = Worker(make, self._wake, self.log, longest_queue)
        self._freshness = Freshness(home, self.log)

    # --- life ---------------------------------------------------------------------------------

    def serve(self) -> None:
        """Answer until it is time to leave."""
        self.log("listening")
        while not self._leave_by or (self._clients and time.monotonic() < self._leave_by):
            timeout = self._next_instant() - time.monotonic()
            for key, _ in self._selector.select(max(0.0, timeout)):
                key.data()
            self._look_at_the_clock()
        self._worker.end(LEAVE_SECONDS)
        for client in list(self._clients.values()):
            self._close(client)
        self._selector.close()
        self._wake_in.close()
        self._wake_out.close()
        self.log("left")

    def order(self, why: str) -> None:
        """Let the loop :meth:`leave`; to be called from signal handlers and other threads."""
        self._order = why
        self._wake()

    def leave(self, why: str) -> None:
        """Stop listening, let the next daemon start, and finish what is under way.

        New connections find no socket. Those that the system has accepted already, and those that
        have not been read, are told to look for another daemon.
        """
        if self._leave_by:
            return
        self._leave_by = time.monotonic() + LEAVE_SECONDS
        self.log(f"leaving: {why}")
        if self._owns_socket():
            self._path.unlink()
        if not self._accept_again:
            self._accept()
            self._selector.unregister(self._listener)
        self._listener.close()
        os.close(self._lock_fd)

    def log(self, line: str) -> None:
        """Append ``line`` to the daemon's log; never anything of a prompt."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        whole = f"{stamp} {os.getpid()} {line}".encode("utf-8", "backslashreplace")
        with contextlib.suppress(OSError):
            fsio.append_line(str(self.folder / LOG), whole, rotate_above=LOG_BYTES)

    def _listen(self) -> socket.socket:
        """Return the listening socket, put in place in one step over whatever was there."""
        fresh = self.folder / "new.sock"  # not longer than the name whose path is known to fit
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            fresh.unlink(missing_ok=True)
            listener.bind(str(fresh))
            fresh.chmod(fsio.FILE_MODE)
            listener.listen(MOST_CONNECTIONS)
            listener.settimeout(0)
            fresh.rename(self._path)
        except BaseException:
            listener.close()
            raise
        return listener

    def _owns_socket(self) -> bool:
        try:
            return self._path.lstat().st_ino == self._inode
        except OSError:
            return False

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        for client in [each for each in self._clients.values() if each.until <= now]:
            self._close(client)
        if self._leave_by:
            return
        self._freshness.step()
        if self._accept_again and now >= self._accept_again:
            self._accept_again = 0.0
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        if now >= self._next_check:
            self._next_check = now + self._check_seconds
            missing = self._missing()
            if missing:
                self.leave(missing)
        if not self._clients and now >= self._last_request + self._idle_seconds:
            self.leave("nobody has asked for a while")

    def _missing(self) -> str:
        """Return what this daemon cannot do without and no longer has, "" where it has all."""
        if not self._owns_socket():
            return "its socket is gone"
        if not Path(self.home).is_dir():
            return "its home is gone"
        if not Path(wire.__file__).exists():
            return "its code is gone"
        index = self._has_index()
        if self._index_seen and not index:
            return "its index is gone"
        self._index_seen = index
        return ""

    def _has_index(self) -> bool:
        return Path(self.home, "generations").is_dir()

    def _next_instant(self) -> float:
        instants = [each.until for each in self._clients.values()]
        if self._leave_by:
            instants.append(self._leave_by)
        else:
            instants += [self._next_check, self._freshness.next_instant()]
            if not self._clients:
                instants.append(self._last_request + self._idle_seconds)
            if self._accept_again:
                instants.append(self._accept_again)
        return min(instants)

    # --- connections --------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor left: without a pause the loop would spin
                if not self._leave_by:
                    self._selector.unregister(self._listener)
                    self._accept_again = time.monotonic() + ACCEPT_PAUSE
                return
            connection.settimeout(0)
            client = _Client(connection)
            self._clients[connection] = client
            self._selector.register(connection, selectors.EVENT_READ, partial(self._read, client))
            if len(self._clients) > MOST_CONNECTIONS:
                self._reply(client, abstention(Reason.BUSY))

    def _close(self, client: _Client) -> None:
        if self._clients.pop(client.socket, None) is None:
            return
        if client.request:
            client.request.wanted = False
            self._asking.pop(client.request, None)
        self._selector.unregister(client.socket)
        client.socket.close()

    def _read(self, client: _Client) -> None:
        try:
            piece = client.socket.recv(PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece or not client.reading:  # it has hung up, or says more than one frame
            self._close(client)
            return
        client.data += piece
        try:
            length = wire.body_length(client.data)
            if length < 0 or len(client.data) < 4 + length:
                return
            message = wire.decode(bytes(client.data[4:]))
        except ValueError:
            self._close(client)
            return
        client.reading = False
        self._route(client, message)

    def _route(self, client: _Client, message: Message) -> None:
        if message.get("v") != wire.PROTOCOL or message.get("program") != __version__:
            self.leave(f"a client of version {message.get('program')!a:.40}")
        kind = message.get("kind")
        if self._leave_by:
            self._reply(client, {"outcome": wire.RESTART})
        elif kind == "status":
            self._reply(client, self._status())
        elif kind == "stop":
            self.leave("it was asked to")
            self._reply(client, {"outcome": "stopping", "pid": os.getpid()})
        elif kind == "session-start":
            # Whoever asks next stands behind it in the queue; nobody waits for it here.
            self._last_request = time.monotonic()
            self._worker.put(Request(message, self._last_request + LONGEST_WAIT))
            self._reply(client, {"outcome": "noted"})
        elif kind == "touched":
            self._last_request = time.monotonic()
            paths = message.get("paths")
            queued = self._freshness.touched(paths if isinstance(paths, list) else ())
            self._reply(client, {"outcome": "noted", "queued": queued})
        elif kind in ("prompt", "embed"):
            self._ask_worker(client, message)
        else:
            self._close(client)

    def _ask_worker(self, client: _Client, message: Message) -> None:
        self._last_request = time.monotonic()
        request = Request(message, deadline_of(message))
        if self._worker.put(request):
            client.request = request
            client.until = request.deadline + GRACE_SECONDS
            self._asking[request] = client
        else:
            self._reply(client, abstention(Reason.BUSY))

    def _reply(self, client: _Client, message: Message) -> None:
        client.reading = False
        try:
            client.data[:] = wire.frame(message)
        except (ValueError, TypeError) as error:
            self.log(f"reply: {told(error)}")
            self._close(client)
            return
        client.until = time.monotonic() + WRITE_SECONDS
        self._write(client)

    def _write(self, client: _Client) -> None:
        try:
            del client.data[: client.socket.send(client.data)]
        except BlockingIOError:
            pass
        except OSError:
            client.data.clear()
        if client.data:
            events = selectors.EVENT_WRITE
            self._selector.modify(client.socket, events, partial(self._write, client))
        else:
            self._close(client)

    def _status(self) -> Message:
        now = time.monotonic()
        return {
            "outcome": "status",
            "pid": os.getpid(),
            "version": __version__,
            "home": self.home,
            "uptime_seconds": round(now - self._started, 1),
            "idle_seconds": round(now - self._last_request, 1),
            "served": self._worker.served,
            "queue": self._worker.waiting,
            "unsynced": self._freshness.pending,
            "rss_bytes": resident_bytes(),
            "generation": self._worker.generation,
        }

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: it has left
            self._wake_in.send(b"\0")

    def _woken(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake_out.recv(PIECE)
        for request, reply in self._worker.answers():
            client = self._asking.pop(request, None)
            if client and reply is not None:
                self._reply(client, reply)
        if self._worker.broken and not self._worker.waiting:
            self.leave("it cannot answer")
        if self._order:
            self.leave(self._order)


def resident_bytes() -> int:
    """Return the memory of this process: what is resident now, or the most there ever was."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()
