"""The guards of ``tests/conftest.py`` hold: one that cannot fail guards nothing."""

from __future__ import annotations

import _socket
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from prompt_rag import config, wire

CONFTEST = Path(__file__).parents[1] / "conftest.py"


def test_every_folder_is_a_temporary_one(tmp_path_factory: pytest.TempPathFactory) -> None:
    below = str(tmp_path_factory.getbasetemp())
    assert str(config.default_home()).startswith(below)
    assert wire.home_folder().startswith(below)
    assert str(Path.home()).startswith(below)
    assert all(value.startswith(below) for name, value in os.environ.items() if "XDG_" in name)


def test_the_platform_folders_are_too(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROMPT_RAG_HOME")
    home = config.default_home()
    assert home == Path(wire.home_folder())
    assert home.is_relative_to(tmp_path_factory.getbasetemp())
    assert config.config_file(home).is_relative_to(tmp_path_factory.getbasetemp())


def connect(family: int, *address: object) -> None:
    with socket.socket(family) as channel:
        channel.settimeout(0.1)
        channel.connect(address)


def connect_with_the_compiled_module() -> None:
    channel = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    try:
        channel.connect(("127.0.0.1", 9))
    finally:
        channel.close()


def send_a_datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.sendto(b"x", ("127.0.0.1", 9))


NETWORK: dict[str, Callable[[], object]] = {
    "address": lambda: connect(socket.AF_INET, "127.0.0.1", 9),
    "compiled module": connect_with_the_compiled_module,
    "datagram": send_a_datagram,
    "name": lambda: socket.getaddrinfo("name.invalid", 80),
    "request": lambda: urllib.request.urlopen("http://127.0.0.1:9/", timeout=0.1),
}


@pytest.mark.parametrize("way", NETWORK)
def test_the_network_is_out_of_bounds(way: str, out_of_bounds: list[str]) -> None:
    with pytest.raises(OSError, match=r"socket\."):
        NETWORK[way]()
    assert len(out_of_bounds) == 1
    out_of_bounds.clear()


def test_a_unix_socket_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as channel:
        listener.bind("here")
        listener.listen()
        channel.connect("here")


FILES: dict[str, Callable[[Path], object]] = {
    "read": lambda home: (home / ".config/prompt-rag/config.toml").read_bytes(),
    "write": lambda home: (home / ".local/share/prompt-rag/x").write_bytes(b""),
    "folder": lambda home: (home / "Library/Application Support/prompt-rag").mkdir(),
    "listing": lambda home: list((home / ".local/share/prompt-rag").iterdir()),
    "rename": lambda home: (home / "x").rename(home / ".cache/prompt-rag"),
    "database": lambda home: sqlite3.connect(home / ".local/share/prompt-rag/catalog.sqlite"),
}


@pytest.mark.parametrize("way", FILES)
def test_the_real_home_is_out_of_bounds(
    way: str, real_home: Path, out_of_bounds: list[str]
) -> None:
    assert real_home != Path.home()
    with pytest.raises(OSError, match="prompt-rag"):
        FILES[way](real_home)
    assert len(out_of_bounds) == 1
    out_of_bounds.clear()


SWALLOWED = """
import contextlib, socket

def test_it():
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", 9))
"""


def test_a_test_fails_that_swallows_the_error(tmp_path: Path) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_swallowed.py").write_text(SWALLOWED)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "must not reach for the network" in run.stdout
