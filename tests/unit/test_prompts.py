"""What of a prompt is the question, and what is none."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_rag.domain import Reason
from prompt_rag.prompts import MAX_QUERY_CHARS, Question, contentless, question

ASKED = "how do we rotate the wiki token?"

TRACEBACK = """Traceback (most recent call last):
  File "/srv/app/rotate.py", line 12, in <module>
    main()
  File "/srv/app/rotate.py", line 8, in main
    token = fetch(wiki)
            ^^^^^^^^^^^
KeyError: 'wiki_token'"""

CHAINED = (
    TRACEBACK
    + """

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/srv/app/main.py", line 3, in <module>
    run()
app.errors.RotationError: no token for wiki"""
)

JAVA = """Exception in thread "main" java.lang.IllegalStateException: no token
\tat com.acme.Wiki.rotate(Wiki.java:41)
\tat com.acme.Main.main(Main.java:9)
\t... 12 more"""

NODE = """    at Object.rotate (/srv/wiki.js:10:11)
    at async main (/srv/main.js:3:5)"""

LOG = """2026-03-01T12:00:01.123Z INFO starting
2026-03-01 12:00:02,456 ERROR wiki: token expired
[2026-03-01 12:00:03] retrying
12:00:04.001 gave up
Mar  1 12:00:05 host wiki[12]: exit
[WARN] disk
ERROR: again
npm ERR! code 1"""

DIFF = """diff --git a/wiki.py b/wiki.py
index 1..2 100644
--- a/wiki.py
+++ b/wiki.py
@@ -1,2 +1,2 @@
-token = 1
+token = 2
 rest"""

FENCED = "```py\nimport wiki\n```"
CODE = "def rotate(token):\n    wiki.put(token)\n    return {"
JSON = '{\n  "token": "x",\n  "wiki": [1, 2]\n}'

PASTES = {
    "traceback": TRACEBACK,
    "chained": CHAINED,
    "java": JAVA.partition("\n")[2],
    "node": NODE,
    "log": LOG,
    "diff": DIFF,
    "fence": FENCED,
    "tilde fence": "~~~~\n~~~\nimport wiki\n~~~~~",
    "code": CODE,
    "json": JSON,
    "pasted content": '<pasted_content id="1">\nall about something else\n</pasted_content id="1">',
    "selection": "<ide_selection>The user selected: token = 1</ide_selection>",
    "long line": "x" * 2_001,
}


@pytest.mark.parametrize("paste", PASTES.values(), ids=PASTES)
@pytest.mark.parametrize(
    "order", ["{asked}\n\n{paste}", "{paste}\n{asked}", "{asked}\n{paste}\nwhy?"]
)
def test_pastes_are_cut_away(paste: str, order: str) -> None:
    if order.startswith("{asked}\n{paste}") and paste in (CODE, DIFF):
        paste += "\n"
    found = question(order.format(asked=ASKED, paste=paste))

    assert found.query in (ASKED, f"{ASKED} why?")
    assert found.reason == ""
    assert found.pasted.split() == paste.split()


def test_fifty_kilobytes_of_pasted_content() -> None:
    paste = (
        '<pasted_content id="1">\n'
        + "another thing entirely. " * 2_100
        + '\n</pasted_content id="1">'
    )
    assert question(f"{ASKED}\n{paste}\n").query == ASKED
    assert question(f"{paste}\n{ASKED}").query == ASKED


def test_words_behind_a_closing_tag_are_the_persons() -> None:
    text = "<ide_opened_file>The user opened wiki.py</ide_opened_file>" + ASKED
    assert question(text).query == ASKED


@pytest.mark.parametrize("paste", [FENCED[:-4], '<pasted_content id="1">\nimport wiki'])
def test_a_paste_that_never_ends(paste: str) -> None:
    found = question(f"{ASKED}\n{paste}\nmore")
    assert found.query == ASKED
    assert found.pasted == f"{paste}\nmore"


@pytest.mark.parametrize(
    ("prompt", "query"),
    [
        (TRACEBACK, "KeyError: 'wiki_token'"),
        (f"fix this:\n{TRACEBACK}", "KeyError: 'wiki_token'"),
        (CHAINED, "app.errors.RotationError: no token for wiki"),
        (f"why?\n{LOG}", "ERROR wiki: token expired"),
        (f"```\n{TRACEBACK}\n```", "KeyError: 'wiki_token'"),
        ("```\nrotate the wiki token\n```", "rotate the wiki token"),
        (
            '<pasted_content id="1">\nrotate the wiki token\n</pasted_content id="1">',
            "rotate the wiki token",
        ),
        (f"{NODE}\nTypeError: token of null", "TypeError: token of null"),
    ],
)
def test_a_paste_alone_is_asked_by_its_telling_line(prompt: str, query: str) -> None:
    found = question(prompt)
    assert found.query == query
    assert found.reason == ""


@pytest.mark.parametrize(
    "prompt",
    [
        "ERROR in the wiki, what is the token?",
        "we saw this:\n    token expired\nwhat now with the wiki?",
        "the plan;\nrotate the wiki token",
        "see @docs/wiki.md and tell me how the token rotates",
        "- rotate the token\n    - of the wiki\n    - and the forum\n    - and the blog",
        "The Traceback (most recent call last) header of wiki.py puzzles me",
        "| token | wiki |\n|---|---|\n| a | b |",
        "at 12:00:00 the wiki token expired",
        "# Plan\n\nrotate the wiki token",
        "> they said rotate the wiki token\nis it true",
    ],
)
def test_what_a_person_wrote_stays(prompt: str) -> None:
    assert question(prompt).query == " ".join(prompt.split())


def test_preamble_of_an_editor_is_not_asked() -> None:
    above = "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\n"
    assert question(f"{above}{ASKED}\n").query == ASKED


def test_picture_marks_say_nothing() -> None:
    assert question(f"[Image #1] {ASKED} [Pasted text #2 +30 lines]").query == ASKED
    assert question("[Image #1]").reason == Reason.EMPTY


# --- length -------------------------------------------------------------------------------------


def test_a_long_question_keeps_both_ends() -> None:
    found = question(
        "First words here. " + "between them stands much. " * 400 + "Last words there?"
    )
    assert len(found.query) <= MAX_QUERY_CHARS
    assert found.query.startswith("First words here. ")
    assert found.query.endswith(" Last words there?")
    assert " … " in found.query
    assert "betwee …" not in found.query


@given(st.text(max_size=400), st.integers(16, 60))
@settings(deadline=None)
def test_a_query_is_one_line_within_its_room(prompt: str, room: int) -> None:
    found = question(prompt, room)
    assert len(found.query) <= room
    assert found.query == " ".join(found.query.split())
    assert bool(found.query) != bool(found.reason)


def test_too_little_room() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        question("x", 15)


MEGABYTES = {
    "words": "some words and more " * 250_000,
    "line breaks": "\n" * 5_000_000,
    "one line": "x" * 5_000_000,
    "fences": "```\nx\n" * 800_000,
    "braces": "{" * 5_000_000,
    "spaces": " " * 5_000_000,
    "tags": '<pasted_content id="1">' * 200_000,
    "log": f"{LOG}\n" * 20_000,
    "lines": ("a" * 1_990 + "\n") * 2_500,
    "brackets": ("[Image #1" * 200 + "\n") * 2_500,
    "emoji": "👍" * 1_200_000,
}


@pytest.mark.parametrize("paste", MEGABYTES.values(), ids=MEGABYTES)
def test_five_megabytes_are_quick(paste: str) -> None:
    started = time.perf_counter()
    question(paste)
    question(f"{ASKED}\n```\n{paste}\n```")
    found = question(f"{paste}\n```\n{ASKED}" if "```" in paste else f"{paste}\n{ASKED}")
    assert time.perf_counter() - started < 3.0  # measured: at most 0.1 s
    assert ASKED in found.query or "```" in paste


def test_both_ends_of_a_huge_prompt_are_read() -> None:
    middle = "import wiki\n" * 10_000
    opened_early = question(f"{ASKED}\n```\n{middle}\n```\nWhy does it fail at night?")
    assert opened_early.query == f"{ASKED} Why does it fail at night?"

    tagged = f'{ASKED}\n<pasted_content id="1">\n{middle}</pasted_content id="1">\nWhy at night?'
    assert question(tagged).query == f"{ASKED} Why at night?"

    complete = (
        f"{ASKED}\n{middle}```\nx = 1\n```\n<ide_selection>\ny\n</ide_selection>\nWhy at night?"
    )
    assert question(complete).query.endswith("Why at night?")


# --- chatter ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt",
    [
        "yes",
        "Yes!",
        "continue",
        "looks good, commit it",
        "ok thanks",
        "go on",
        "yes please do that",
        "lgtm ship it",
        "LGTM, merge!",
        "try again",
        "next",
        "👍",
        "👍🏽🎉",
        "...",
        "?",
        ":)",
        "run the tests again",
        "2",
        "option b",
        "yes, 1 and 3",
        "why?",
        "but why",
        "how so?",
        "hello, how are you today",
        "what should we do next?",
        "that's great, keep going",
        "that’s it",
        "yesss",
        "okayyy thanksss",
        "ＯＫ",
        "it still doesn't work",
        "can you fix that please?",
        "x",
        "ja, mach weiter",
        "sieht gut aus, danke",
        "oui, continue",
        "c'est parfait, merci",
        "sí, adelante por favor",
        "vale, continúa",
        "はい、お願いします",
        "続けてください",
        "好的，继续",
        "可以",
        "谢谢！",
        "ok继续",
    ],
)
def test_contentless(prompt: str) -> None:
    assert question(prompt) == Question("", Reason.CONTENTLESS)


@pytest.mark.parametrize(
    "prompt",
    [
        "commit signing fails",
        "如何部署",
        "下一步怎么做",
        "トークンの更新方法",
        "위키 토큰",
        "kubernetes",
        "deploy it",
        "run make lint",
        "continue with the wiki token",
        "yes, use the staging database",
        "merge conflict",
        "what is our wiki token",
        "how do we test",
        "why is it slow",
        "test coverage",
        "fix #123 in the parser",
        "wie geht die Token-Rotation",
        "comment on tourne le jeton",
        "ok " * 41,
    ],
)
def test_a_question_all_the_same(prompt: str) -> None:
    found = question(prompt)
    assert found.query == " ".join(prompt.split())
    assert found.reason == ""


@pytest.mark.parametrize("prompt", ["", "  \n\t", "\u200b", "\ufeff\n"])
def test_empty(prompt: str) -> None:
    assert question(prompt) == Question("", Reason.EMPTY)


def test_an_empty_paste_is_contentless() -> None:
    assert question("```\n```").reason == Reason.CONTENTLESS
    assert contentless("")
