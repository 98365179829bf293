"""Folders, frames and the client's call: all that hook and daemon must agree on.

The hook loads this module on every prompt, so it stays on built-in modules. ``os``, ``socket``
and ``json`` alone would cost more than everything else the hook does; ``posix``, ``_socket`` and
``_json`` are the compiled parts below them, and each has its documented module as a fallback.

One exchange is one connection: a frame there, a frame back. A frame is its length in four bytes,
big-endian, and a JSON object in UTF-8. Every frame carries ``v``, the version of this protocol,
and ``program``, the version of the package. A daemon of another version answers
``{"outcome": "restart"}`` and leaves. Framing and that one answer never change.
"""

import sys
import time

from prompt_rag import __version__

try:
    import posix as system
except ImportError:  # Windows
    import os as system  # type: ignore[no-redef]  # the same names under another module

PROTOCOL = 1
MAX_FRAME = 8 * 1024 * 1024
"""Bytes of a frame's body: a prompt at the hook's own limit, and room for its escapes."""

SOCKET = "daemon.sock"
LOCK = "daemon.lock"
SETTINGS = "hook.conf"
LOG = "decisions.jsonl"
SETTINGS_BYTES = 4096  # three short lines are expected
DEADLINE_KEY, MODE_KEY, IDLE_KEY = (
    "hook.deadline_seconds",
    "daemon.mode",
    "daemon.idle_seconds",
)
SETTING_KEYS = (DEADLINE_KEY, MODE_KEY, IDLE_KEY)
"""The settings that matter before the configuration is read."""

NOTE_SUFFIXES = (".md", ".markdown", ".mdown", ".mkd")
"""Endings of the files that a folder of notes may hold, in lower case."""

LONGEST_SOCKET_PATH = 99
"""Bytes. ``sun_path`` holds 104 on macOS and 108 on Linux, its final NUL included."""

DEADLINE_SECONDS = 1.5  # the most a person should wait at a prompt, warm or cold
NAP_SECONDS = 0.008  # between two looks for a starting daemon: a tenth of the time it needs
STARTS = 2  # one that is missing, and one more after a daemon of another version has left

RESTART = "restart"
DEADLINE = "deadline"
DAEMON_UNAVAILABLE = "daemon-unavailable"
BAD_INPUT = "bad-input"
INDEX_MISSING = "index-missing"

_OTHERS_WRITE = 0o022
_TYPE, _FOLDER, _SOCKET = 0o170000, 0o040000, 0o140000  # S_IFMT, S_IFDIR, S_IFSOCK


class Unanswered(Exception):
    """There is no answer; ``reason`` is the value of the :class:`~prompt_rag.domain.Reason`."""

    def __init__(self, reason: str, why: str = "") -> None:
        super().__init__(why or reason)
        self.reason = reason


class _Absent(Exception):
    """No daemon listens: its socket does not exist or refuses."""


# --- folders ----------------------------------------------------------------------------------


def environment(name: str) -> str:
    """Return the environment variable ``name``, or "" where it is not set."""
    if system.__name__ == "posix":
        raw: dict[bytes, bytes] = system.environ
        return raw.get(name.encode(), b"").decode("utf-8", "surrogateescape")
    return str(system.environ.get(name, ""))  # type: ignore[call-overload]  # os: a mapping of str


def home_folder() -> str:
    """Return the absolute path of the data folder; it need not exist.

    ``PROMPT_RAG_HOME``, else what ``platformdirs.user_data_dir("prompt-rag", appauthor=False)``
    says on Linux and macOS, without the time it takes to load.

    Raises LookupError where this user has no home.
    """
    own = environment("PROMPT_RAG_HOME")
    if own:
        return absolute(own)
    data = environment("XDG_DATA_HOME")
    if data.startswith("/"):
        return data.rstrip("/") + "/prompt-rag"
    under = "/Library/Application Support" if sys.platform == "darwin" else "/.local/share"
    return _user_home() + under + "/prompt-rag"


def absolute(path: str) -> str:
    """Return ``path`` with ``~`` and the working folder filled in and without a final slash."""
    if path == "~" or path.startswith("~/"):
        path = _user_home() + path[1:]
    if not path.startswith("/") and system.__name__ == "posix":
        path = f"{system.getcwd()}/{path}"
    return path.rstrip("/") or "/"


def _user_home() -> str:
    home = environment("HOME")
    if not home.startswith("/"):
        import pwd  # only where a host has taken HOME away

        home = pwd.getpwuid(system.getuid()).pw_dir
        if not home.startswith("/"):
            raise LookupError("this user has no home")
    return home.rstrip("/")


def runtime_folder(home: str) -> str:
    """Return the folder of lock, socket and daemon log; it need not exist.

    It is ``<home>/run`` where the path of the socket is short enough for the system, else a
    folder below ``/tmp`` that belongs to this user and this home.
    """
    inside = f"{home}/run"
    if len(f"{inside}/{SOCKET}".encode("utf-8", "surrogateescape")) <= LONGEST_SOCKET_PATH:
        return inside
    from os.path import realpath  # two spellings of one long path must not start two daemons

    return f"/tmp/prompt-rag-{system.getuid()}-{digest(realpath(home))}"  # noqa: S108  # checked


def settings(home: str) -> dict[str, str]:
    """Return the lines ``key = value`` of ``<home>/hook.conf``, as far as there is such a file.

    The configuration writes it for the hook, which has no time to parse TOML. A variable
    ``PROMPT_RAG_…`` for one of ``SETTING_KEYS`` goes before it.
    """
    text = ""
    try:
        fd = system.open(f"{home}/{SETTINGS}", system.O_RDONLY)
        try:
            text = system.read(fd, SETTINGS_BYTES).decode("utf-8", "replace")
        finally:
            system.close(fd)
    except OSError:
        pass
    found = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals:
            found[key.strip()] = value.strip()
    for key in SETTING_KEYS:
        value = environment("PROMPT_RAG_" + key.upper().replace(".", "_"))
        if value:
            found[key] = value
    return found


def seconds(found: dict[str, str], key: str, default: float) -> float:
    """Return the positive number of seconds that ``found[key]`` gives, else ``default``."""
    try:
        value = float(found[key])
    except (KeyError, ValueError):
        return default
    return value if 0 < value < float("inf") else default


def digest(text: str) -> str:
    """Return 16 hex digits that stand for ``text`` in logs and file names."""
    try:
        from _blake2 import blake2b  # hashlib would load OpenSSL
    except ImportError:
        from hashlib import blake2b
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


# --- frames -----------------------------------------------------------------------------------


class _Plain:
    """What the compiled JSON scanner asks of its decoder: no hooks, nothing special."""

    strict = False
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float


def encode(value: object) -> str:
    """Return ``value``, made of dict, list, str, numbers, bool and None, as JSON."""
    if isinstance(value, str):
        return _quoted(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ",".join([f"{_quoted(k)}:{encode(v)}" for k, v in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([encode(each) for each in value]) + "]"
    if isinstance(value, int | float):
        text = repr(value + 0)  # an IntEnum as its number
        return text if text[-1].isdigit() else "null"  # JSON has no infinity
    raise TypeError(f"{type(value).__name__} has no place in a frame")


def _quoted(text: str) -> str:
    try:
        from _json import encode_basestring
    except ImportError:
        from json.encoder import encode_basestring
    return str(encode_basestring(text))


def decode(body: bytes) -> dict[str, object]:
    """Return the JSON object that ``body`` holds and nothing else. Raises ValueError."""
    try:
        from _json import make_scanner
    except ImportError:
        from json.scanner import make_scanner
    text = body.decode("utf-8", "surrogatepass")
    try:
        value, end = make_scanner(_Plain())(text, 0)  # type: ignore[arg-type]  # asks for no more
    except Exception:
        # StopIteration, RecursionError, and SystemError while json.decoder is not loaded.
        raise ValueError("a frame holds no JSON") from None
    if not isinstance(value, dict) or text[end:].strip():
        raise ValueError("a frame holds something other than one JSON object")
    return value


def frame(message: dict[str, object]) -> bytes:
    """Return ``message`` with both versions as a frame. Raises ValueError over the cap."""
    whole = {"v": PROTOCOL, "program": __version__, **message}
    body = encode(whole).encode("utf-8", "surrogatepass")
    if len(body) > MAX_FRAME:
        raise ValueError("a frame over the cap")
    return len(body).to_bytes(4, "big") + body


def body_length(data: bytes | bytearray) -> int:
    """Return the length that the frame in ``data`` announces, -1 while its head is not whole.

    Raises ValueError where it is over the cap.
    """
    if len(data) < 4:
        return -1
    length = int.from_bytes(data[:4], "big")
    if length > MAX_FRAME:
        raise ValueError("a frame over the cap")
    return length


# --- the call ---------------------------------------------------------------------------------


def has_sockets() -> bool:
    """Return whether this platform has Unix sockets and can start a detached process."""
    import _socket  # the hook does not load it for what nobody typed

    return hasattr(_socket, "AF_UNIX") and hasattr(system, "fork")


def ask(
    home: str, request: dict[str, object], deadline: float, *, start: bool = True
) -> dict[str, object]:
    """Return the daemon's reply to ``request``, starting the daemon where none listens.

    ``deadline`` is an instant of ``time.monotonic()``; the daemon gets it with the request. Only
    a socket that is missing or refuses means that there is no daemon: a daemon that is there and
    does not answer is not asked twice.

    Raises :class:`Unanswered`.
    """
    try:
        data = frame({**request, "deadline": deadline})
    except ValueError:
        raise Unanswered(BAD_INPUT, "the prompt is too long for a frame") from None
    starts = STARTS if start else 0
    while True:
        try:
            reply = _exchange(home, data, deadline)
        except _Absent:
            reply = {"outcome": RESTART}
        if reply.get("outcome") != RESTART:
            return reply
        if not start:
            raise Unanswered(DAEMON_UNAVAILABLE, "no daemon is running")
        starts = _see_to_daemon(home, starts)
        if time.monotonic() + NAP_SECONDS >= deadline:
            raise Unanswered(DEADLINE)
        time.sleep(NAP_SECONDS)


def ask_aside(home: str, request: dict[str, object], deadline: float) -> dict[str, object]:
    """Return the reply to ``request`` of a process made for it alone, where no daemon may be.

    Raises :class:`Unanswered`.
    """
    from prompt_rag import launch

    try:
        data = launch.once(home, frame({**request, "deadline": deadline}), deadline)
        if len(data) != 4 + max(0, body_length(data)):
            raise ValueError("half an answer")  # noqa: TRY301  # one exit for both
        return decode(data[4:])
    except TimeoutError:
        raise Unanswered(DEADLINE) from None
    except (OSError, ValueError) as error:
        raise Unanswered(DAEMON_UNAVAILABLE, str(error)) from None


def _see_to_daemon(home: str, starts: int) -> int:
    """Start a daemon unless one is on its way; return how often it may be done again.

    Who starts it takes its lock first and hands it over, so that of many only one does.
    """
    from prompt_rag import launch  # only where there is no daemon

    try:
        system.stat(home)
    except OSError:  # nothing was ever set up here, or it has been purged
        raise Unanswered(INDEX_MISSING, f"{home} does not exist") from None
    try:
        lock = launch.take_lock(runtime_folder(home), LOCK)
    except OSError as error:
        raise Unanswered(DAEMON_UNAVAILABLE, str(error)) from None
    if lock < 0:
        return starts
    try:
        if not starts:
            raise Unanswered(DAEMON_UNAVAILABLE, "the daemon ends as soon as it is started")
        launch.detached(home, lock)
    except OSError as error:
        raise Unanswered(DAEMON_UNAVAILABLE, str(error)) from None
    finally:
        system.close(lock)
    return starts - 1


def _exchange(home: str, data: bytes, deadline: float) -> dict[str, object]:
    """Send the frame ``data`` and return the message that comes back."""
    import _socket

    path = _own_socket(runtime_folder(home))
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        channel.settimeout(_left(deadline))
        try:
            channel.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            raise _Absent from None
        _check_peer(channel)
        channel.sendall(data)
        head = _receive(channel, 4, deadline)
        body = _receive(channel, body_length(head), deadline)
        reply = decode(body)
    except TimeoutError:
        raise Unanswered(DEADLINE) from None
    except (OSError, ValueError) as error:
        raise Unanswered(DAEMON_UNAVAILABLE, str(error)) from None
    finally:
        channel.close()
    if reply.get("v") != PROTOCOL and reply.get("outcome") != RESTART:
        raise Unanswered(DAEMON_UNAVAILABLE, "an answer in another protocol")
    return reply


def _own_socket(folder: str) -> str:
    """Return the path of the daemon's socket in ``folder``, both ours and nobody else's."""
    path = f"{folder}/{SOCKET}"
    try:
        outer = system.lstat(folder)
        inner = system.lstat(path)
    except FileNotFoundError:
        raise _Absent from None
    except OSError as error:
        raise Unanswered(DAEMON_UNAVAILABLE, str(error)) from None
    me = system.getuid()
    if (
        outer.st_uid != me
        or inner.st_uid != me
        or outer.st_mode & _TYPE != _FOLDER
        or outer.st_mode & _OTHERS_WRITE
        or inner.st_mode & _TYPE != _SOCKET
    ):
        raise Unanswered(DAEMON_UNAVAILABLE, f"{path} is not private")
    return path


def _check_peer(channel: object) -> None:
    """Refuse a listener that runs as another user, where the system tells."""
    import _socket

    option = getattr(_socket, "SO_PEERCRED", None)
    if option is None:  # macOS: owner and mode of folder and socket have to do
        return
    # struct ucred: pid, uid, gid of four bytes each
    credentials = channel.getsockopt(_socket.SOL_SOCKET, option, 12)  # type: ignore[attr-defined]
    if int.from_bytes(credentials[4:8], sys.byteorder) != system.getuid():
        raise Unanswered(DAEMON_UNAVAILABLE, "the listener runs as another user")


def _receive(channel: object, length: int, deadline: float) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        channel.settimeout(_left(deadline))  # type: ignore[attr-defined]
        part = channel.recv(length - len(parts))  # type: ignore[attr-defined]
        if not part:
            raise ConnectionResetError("the daemon hung up")
        parts += part
    return bytes(parts)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise Unanswered(DEADLINE)
    return left
