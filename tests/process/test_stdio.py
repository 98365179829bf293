"""Standard output kept for one protocol: what reaches it from a real process, and what does not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SPEAKS = """
import os, sys
from prompt_rag.stdio import Output
print("before")
output = Output()
print("hidden"); os.write(1, b"raw\\n")
with output.given_back():
    os.write(1, b"protocol\\n")
    sys.stdout.write("late")
print("after"); os.write(1, b"end\\n")
"""


def run(code: str) -> subprocess.CompletedProcess[bytes]:
    line = [sys.executable, "-c", code]
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    return subprocess.run(line, capture_output=True, timeout=30, check=False, env=buffered)


def test_only_what_is_meant_for_it_is_on_stdout() -> None:
    done = run(SPEAKS)
    assert (done.returncode, done.stdout) == (0, b"before\nprotocol\n")
    for word in (b"hidden", b"raw", b"late", b"after", b"end"):
        assert word in done.stderr


def test_an_error_inside_leaves_it_guarded() -> None:
    done = run(SPEAKS.replace('sys.stdout.write("late")', "print(1 / 0)"))
    assert (done.returncode, done.stdout) == (1, b"before\nprotocol\n")
    assert b"ZeroDivisionError" in done.stderr


@pytest.mark.parametrize("lost", ["os.close(2)", "sys.stdout = None", "sys.stdout.close = None"])
def test_streams_that_a_host_has_closed_do_not_stop_it(lost: str) -> None:
    code = SPEAKS.replace("output = Output()", f"{lost}; output = Output()", 1)
    code = code.replace('print("before")', "sys.stdout.flush()")
    code = code.replace('print("hidden"); ', "").replace('print("after"); ', "")
    code = code.replace('    sys.stdout.write("late")\n', "")
    assert run(code).stdout == b"protocol\n"
