"""The hook: one JSON object on stdin, at most one answer on stdout, always exit code 0.

Whatever goes wrong, the prompt must go through as if there were no hook: nothing on stderr, no
exit code, no wait beyond the deadline. Agent hosts block or delay a person's prompt for each of
these. So the process ends in exactly one place, :func:`_leave`, and a timer leads there from
wherever it is when the time is up.

``prompt-rag hook`` calls :func:`main`; hosts better run the launcher that ``install`` writes
(see :mod:`prompt_rag.launch`), which skips everything else the command line loads.
"""

import time

from prompt_rag import __version__, hosts, wire

try:
    import posix as system
except ImportError:  # Windows
    import os as system  # type: ignore[no-redef]  # the same names under another module

LONGEST_INPUT = 5 * 1024 * 1024  # bytes; a host's own limits are far below
PIECE = 65536  # bytes; what a pipe holds
UNNOTED = ("busy", "bad-config")  # replies made where nobody can write into the decision log
WRITE_SECONDS = 1.0  # for a host that reads slowly once an answer has begun; usually nothing


class Turn:
    """What is known so far about this one call. Instants are of ``time.monotonic()``."""

    __slots__ = ("call", "deadline", "home", "noted", "settings", "started")

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.deadline = self.started + wire.DEADLINE_SECONDS
        self.home = ""
        self.settings: dict[str, str] = {}
        self.call: hosts.Call | None = None
        self.noted = False


def main(arguments: list[str]) -> None:
    """Serve one call of a host and end the process. Options: ``--host HOST``, ``--home DIR``."""
    turn = Turn()
    try:
        _protect(turn)
        answer = respond(turn, arguments)
        if answer:
            _until(turn, time.monotonic() + WRITE_SECONDS)
            _write(answer)
    except wire.Unanswered as silence:
        _note(turn, silence.reason)
    except BaseException as error:
        _note(turn, "error", type(error).__name__)
    finally:
        _leave()


def respond(turn: Turn, arguments: list[str]) -> bytes:
    """Return the bytes to print for the payload on stdin, b"" for nothing.

    Raises :class:`~prompt_rag.wire.Unanswered`.
    """
    turn.home = _option(arguments, "--home") or wire.home_folder()
    turn.settings = wire.settings(turn.home)
    allowed = wire.seconds(turn.settings, wire.DEADLINE_KEY, wire.DEADLINE_SECONDS)
    _until(turn, turn.started + allowed)
    call = turn.call = hosts.read(_payload(), _option(arguments, "--host"))
    if call.event == hosts.PROMPT:
        return _prompt(turn, call)
    if call.event == hosts.SESSION_START:
        _session_start(turn, call)
    if call.event == hosts.TOUCHED:
        _touched(turn, call)
    return b""


def _prompt(turn: Turn, call: hosts.Call) -> bytes:
    reason = hosts.untyped(call.prompt)
    if reason:
        _note(turn, reason)
        return hosts.nothing(call)
    request = _request(turn, call, kind="prompt", prompt=call.prompt)
    if turn.settings.get(wire.MODE_KEY) == "off" or not wire.has_sockets():
        reply = wire.ask_aside(turn.home, request, turn.deadline)
    else:
        reply = wire.ask(turn.home, request, turn.deadline)
    block = reply.get("block")
    if reply.get("outcome") == "inject" and isinstance(block, str) and block:
        return hosts.envelope(call, block)
    if reply.get("reason") in UNNOTED:
        _note(turn, str(reply["reason"]))
    return hosts.nothing(call)


def _session_start(turn: Turn, call: hosts.Call) -> None:
    """Wake the daemon, and let it forget what a session was shown that no longer shows it."""
    request = _request(turn, call, kind="session-start", source=call.session_source)
    if turn.settings.get(wire.MODE_KEY) != "off" and wire.has_sockets():
        wire.ask(turn.home, request, turn.deadline)
    elif call.session_source in ("clear", "compact"):
        wire.ask_aside(turn.home, request, turn.deadline)


def _touched(turn: Turn, call: hosts.Call) -> None:
    """Tell the daemon which notes were edited; most edits are of something else."""
    paths = [path for path in call.paths if path.lower().endswith(wire.NOTE_SUFFIXES)]
    if paths and turn.settings.get(wire.MODE_KEY) != "off" and wire.has_sockets():
        turn.noted = True  # the log is about prompts
        wire.ask(turn.home, _request(turn, call, kind="touched", paths=paths), turn.deadline)


def _request(turn: Turn, call: hosts.Call, **more: object) -> dict[str, object]:
    return {
        "host": call.host,
        "session": call.session,
        "cwd": call.cwd,
        "sent_ms": round((time.monotonic() - turn.started) * 1000, 3),
        **more,
    }


def _option(arguments: list[str], name: str) -> str:
    """Return the value of the option ``name``, "" where it is missing."""
    for position, argument in enumerate(arguments):
        if argument == name and position + 1 < len(arguments):
            return arguments[position + 1]
        if argument.startswith(name + "="):
            return argument[len(name) + 1 :]
    return ""


def _payload() -> dict[str, object]:
    """Read stdin until it holds one JSON object; some hosts never close it.

    Raises :class:`~prompt_rag.wire.Unanswered` at its end or beyond ``LONGEST_INPUT`` bytes.
    """
    data = bytearray()
    while len(data) <= LONGEST_INPUT:
        piece = system.read(0, PIECE)
        data += piece
        payload = hosts.object_in(data)
        if payload is not None:
            return payload
        if not piece:
            break
    raise wire.Unanswered(wire.BAD_INPUT)


def _write(answer: bytes) -> None:
    while answer:
        try:
            answer = answer[system.write(1, answer) :]
        except BlockingIOError:  # the host has made our pipe non-blocking
            time.sleep(0.002)


# --- the way out ------------------------------------------------------------------------------


def _protect(turn: Turn) -> None:
    """Silence stderr, keep the numbers 0 to 2 from being used again, and catch what would kill."""
    import _signal  # type: ignore[import-not-found]  # the compiled part; signal loads enum

    path = getattr(system, "devnull", "/dev/null")
    null = system.open(path, system.O_RDWR)
    while null < 2:  # the host has closed it: a socket must not become our stdout
        null = system.open(path, system.O_RDWR)
    if null > 2:
        system.dup2(null, 2)

    def end(*_: object) -> None:
        _leave()

    def too_late(*_: object) -> None:
        try:
            _note(turn, wire.DEADLINE)
        finally:
            _leave()

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(_signal, name):
            _signal.signal(getattr(_signal, name), end)
    if hasattr(_signal, "SIGALRM"):
        _signal.signal(_signal.SIGALRM, too_late)
    else:
        import _thread

        _thread.start_new_thread(_watch, (turn,))
    _until(turn, turn.deadline)


def _until(turn: Turn, deadline: float) -> None:
    """Let the process end at ``deadline``, whatever it does by then."""
    import _signal

    turn.deadline = deadline
    if hasattr(_signal, "setitimer"):
        _signal.setitimer(_signal.ITIMER_REAL, max(deadline - time.monotonic(), 0.001))


def _watch(turn: Turn) -> None:
    """Do the timer's work in a thread where the system has no timers (Windows)."""
    while time.monotonic() < turn.deadline:
        time.sleep(0.02)
    _note(turn, wire.DEADLINE)
    _leave()


def _leave() -> None:
    """End now: taking the interpreter down in order would cost a millisecond, and might speak."""
    system._exit(0)


def _note(turn: Turn, reason: str, detail: str = "") -> None:
    """Write a line into the decision log, if it can be written; never the prompt itself."""
    if turn.noted or not turn.home:
        return
    turn.noted = True
    try:
        now = time.time()
        call = turn.call
        record: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
            + f".{int(now % 1 * 1000):03d}Z",
            "id": system.urandom(6).hex(),
            "host": call.host if call else "",
            "session": wire.digest(call.session) if call and call.session else "",
            "prompt": wire.digest(call.prompt) if call else "",
            "chars": len(call.prompt) if call else 0,
            "outcome": "abstain",
            "reason": reason,
            "timings_ms": {"total": round((time.monotonic() - turn.started) * 1000, 3)},
            "version": __version__,
        }
        if detail:
            record["detail"] = detail
        flags = system.O_WRONLY | system.O_APPEND | system.O_CREAT
        fd = system.open(f"{turn.home}/{wire.LOG}", flags, 0o600)
        system.write(fd, wire.encode(record).encode() + b"\n")
    except BaseException:
        # A full disk, a read-only home, no home: the prompt matters more than the log.
        return
