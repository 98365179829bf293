"""No test touches this person's own files or the network.

Every test has a home, a user folder and platform folders of its own. What they cannot redirect is
watched: an audit hook raises when this process reaches for an address of the internet or for our
folders in the real home, and the test that did it fails even where the code swallowed the error.
Processes that a test starts inherit the folders, but not the hook.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# The machine may be busy; how long an example takes says nothing here.
settings.register_profile("prompt-rag", deadline=None)
settings.load_profile("prompt-rag")

REAL_HOME = Path("~").expanduser()
PLACES = (
    ".local/share",
    ".local/state",
    ".config",
    ".cache",
    "Library/Application Support",
    "Library/Caches",
)
OURS = tuple(str(REAL_HOME / place / "prompt-rag") for place in PLACES)
REDIRECTED = {
    "HOME": ".",
    "XDG_DATA_HOME": ".local/share",
    "XDG_CONFIG_HOME": ".config",
    "XDG_CACHE_HOME": ".cache",
    "XDG_STATE_HOME": ".local/state",
    "XDG_RUNTIME_DIR": ".runtime",
}
UNSET = ("FASTEMBED_CACHE_PATH", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE")
INTERNET = (socket.AF_INET, socket.AF_INET6)
FILES = ("open", "os.mkdir", "os.rename", "os.remove", "os.listdir", "os.scandir")
NAMES = (str, bytes, os.PathLike)
DATABASE = "sqlite3.connect"
SENDING = ("socket.connect", "socket.sendto", "socket.sendmsg")
LOOK_UPS = ("socket.getaddrinfo", "socket.gethostbyname")

_caught: list[str] = []


class OutOfBounds(OSError):
    """The test went where no test goes."""


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    """Raise :class:`OutOfBounds` for the network and for our folders in the real home."""
    if event in FILES or event == DATABASE:
        places = [os.fsdecode(each) for each in arguments[:2] if isinstance(each, NAMES)]
        wrong = any(place.removeprefix("file:").startswith(OURS) for place in places)
    elif event in SENDING:
        wrong = getattr(arguments[0], "family", None) in INTERNET
    else:
        wrong = event in LOOK_UPS
    if wrong:
        _caught.append(f"{event}{arguments}")
        raise OutOfBounds(_caught[-1])


sys.addaudithook(_watch)


def _redirect(environment: pytest.MonkeyPatch, folder: Path) -> None:
    for name in (*UNSET, *(each for each in os.environ if each.startswith("PROMPT_RAG_"))):
        environment.delenv(name, raising=False)
    for name, place in REDIRECTED.items():
        environment.setenv(name, str(folder / place))
    environment.setenv("PROMPT_RAG_HOME", str(folder / "prompt-rag"))


@pytest.fixture(scope="session", autouse=True)
def _home_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Redirect what fixtures do that serve more than one test."""
    with pytest.MonkeyPatch.context() as environment:
        _redirect(environment, tmp_path_factory.mktemp("user"))
        yield


@pytest.fixture(autouse=True)
def _home_of_the_test(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    _redirect(monkeypatch, tmp_path_factory.mktemp("user"))
    _caught.clear()
    yield
    caught = list(_caught)
    _caught.clear()
    assert not caught, f"a test must not reach for the network or the real home: {caught}"


@pytest.fixture
def real_home() -> Path:
    """This person's home, as it was before the tests began."""
    return REAL_HOME


@pytest.fixture
def out_of_bounds() -> list[str]:
    """What the guards have caught in this test; it fails unless it empties the list."""
    return _caught
