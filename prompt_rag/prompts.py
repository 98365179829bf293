"""What of a prompt is the question.

Real prompts carry logs, tracebacks, code and pasted files around one or two sentences that ask;
the model that embeds them reads some 256 tokens and would spend them all on the paste.
:func:`question` keeps the asking part, and says where there is none ("looks good, commit it").

Only the beginning and the end of a very long prompt are looked at, and every pattern is anchored
to a line, so that a paste of megabytes takes milliseconds.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from prompt_rag.domain import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_QUERY_CHARS = 1_200
"""About 256 tokens of English, the most that the default model reads."""

_REACH = 20_000  # characters at either end of a prompt; the asking sentence is first or last
_LONGEST_LINE = 2_000  # a longer one without spaces is data: minified code, base64, a wall
_SPACES_OF_PROSE = 20  # characters for each space at most; six or so in any language with spaces
_SHORTEST = 3  # Latin letters' worth of information below which nothing can be asked
_IDEOGRAPH = 3  # Latin letters that an ideograph or a kana is worth: four of them are a question


@dataclass(frozen=True, slots=True)
class Question:
    """What a prompt asks.

    ``query`` is the text to embed, on one line, "" where there is a ``reason`` not to ask.
    ``pasted`` is what was cut away (logs, code, pasted files), as it stood: it says nothing about
    what is asked, but its identifiers may be evidence.
    """

    query: str
    reason: Reason | Literal[""] = ""
    pasted: str = ""


def question(prompt: str, max_chars: int = MAX_QUERY_CHARS) -> Question:
    """Return what ``prompt`` asks, in at most ``max_chars`` characters.

    Where the person's own words are missing or empty ("fix this:" above a traceback), the query
    is the line of the paste that says most: the last exception, else the first error, else how it
    begins. ``reason`` is EMPTY, or CONTENTLESS where neither says anything.

    Raises ValueError where ``max_chars`` is below 16, too little for any sentence.
    """
    if max_chars < 16:
        raise ValueError(f"max_chars must be at least 16, not {max_chars}")
    asked, pasted = _split(prompt)
    if not asked and not pasted:
        return Question("", Reason.EMPTY)
    if not contentless(asked):
        return Question(_shrink(asked, max_chars), pasted=pasted)
    telling = _tidy(_telling(pasted))
    if not contentless(telling):
        return Question(_shrink(telling, max_chars), pasted=pasted)
    return Question("", Reason.CONTENTLESS, pasted)


# --- the asking part ---------------------------------------------------------------------------

# What Codex's editor extension writes above the person's words.
_PREAMBLE_END = "## My request for Codex:"
# Wrappers that hosts put around what was not typed but pasted, selected or attached.
_WRAPPERS = (
    "pasted_content|ide_selection|ide_opened_file|ide_diagnostics|system-reminder|attached_files?"
    "|file_contents?|document|documents|selection|task-notification|local-command-stdout"
)
_WRAPPER = re.compile(rf"\s*<({_WRAPPERS})\b[^>]*>", re.IGNORECASE)
_WRAPPER_LINE = re.compile(rf"\s*</?(?:{_WRAPPERS})\b[^>]*>\s*", re.IGNORECASE)
_PLACEHOLDER = re.compile(r"\[(?:Image|Pasted text|Attachment) #\d+[^\]\n]{0,40}\]")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)$")
_TRACEBACK = re.compile(r".{0,80}Traceback \(most recent call last\):\s*$")
_CHAINED = re.compile(r"(?:During handling of the above|The above exception was the direct cause)")
_DIFF = re.compile(r"diff --git |@@ -\d+(?:,\d+)? \+\d+")
_DIFF_LINE = re.compile(r"[ +\-@\\\t]|(?:diff|index|new file|deleted file|similarity|rename) |$")
_FRAME = re.compile(
    r"""\s+at\s\S.*[:(]                               # Java, JavaScript, C#
      | \s*File\s"[^"\n]+",\sline\s\d+               # Python
      | \s*\.{3}\s\d+\smore\s*$
      | goroutine\s\d+\s\[
      | \s+\S+\.(?:go|rs|c|cc|cpp|h|rb|php):\d+
      | \s+\d+:\s+\S*(?:::|0x)""",  # Rust, C
    re.VERBOSE,
)
_LOG = re.compile(
    r"""\s*(?:
        [\[(]?\d{4}[-/.]\d\d[-/.]\d\d[T ]\d\d:\d\d(?::\d\d)?[.,\d]{0,10}(?:Z|[+-]\d\d:?\d\d)?[\])]?
      | [\[(]?\d\d:\d\d:\d\d[.,\d]{0,10}[\])\s]
      | (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s[\s\d]\d\s\d\d:\d\d:\d\d\s
      | \[?(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL)\]?(?:[:|\]]|\s\s)
      | npm\s(?:ERR!|WARN|error|warn)\s
    )""",
    re.VERBOSE,
)
_CODE = re.compile(
    r"""(?!\s*(?:[-*+]|\d+[.)])\s)(?:                # a list is prose however deep it stands
        (?:\ {4}|\t)\s*\S
      | \s*[}\])]
      | \s*"[^"\n]+"\s*:
      | \s*(?:import|from|def|class|const|let|var|return|function|fn|func|public|private)\s.*[:;({=]
      | [^\n]*[;{}(\[]\s*$
    )""",
    re.VERBOSE,
)
_CODE_RUN = 3  # lines that look like code one after another; a single one may be a sentence


def _split(prompt: str) -> tuple[str, str]:
    """Return what the person wrote, tidied, and what was pasted, as it stood."""
    asked: list[str] = []
    pasted: list[str] = []
    # All of a prompt below the preamble, if it has one, is the person's.
    for part in _ends(prompt.partition(_PREAMBLE_END)[2] or prompt):
        for line, is_pasted in _marked(part):
            (pasted if is_pasted else asked).append(line)
    return _tidy(_PLACEHOLDER.sub(" ", "\n".join(asked))), "\n".join(pasted).strip("\n")


def _ends(prompt: str) -> Iterator[str]:
    """Yield ``prompt`` if it is short, else its beginning and its end, whole lines of both."""
    if len(prompt) <= 2 * _REACH:
        yield prompt
        return
    yield prompt[:_REACH]
    tail = prompt[-_REACH:].partition("\n")[2]
    # What the end closes was opened in the part that nobody looks at: it is paste up to there.
    for match in re.finditer(rf"</(?:{_WRAPPERS})\b[^>\n]*>", tail):
        if f"<{match[0][2:-1].split()[0]}" not in tail[: match.start()]:
            tail = tail[match.end() :]
            break
    lines = tail.split("\n")
    fences = [at for at, line in enumerate(lines) if _FENCE.match(line[:_LONGEST_LINE])]
    yield "\n".join(lines[fences[0] + 1 :] if len(fences) % 2 else lines)


def _marked(text: str) -> Iterator[tuple[str, bool]]:
    """Yield every line of ``text`` and whether it was pasted."""
    lines = text.split("\n")
    marks = [False] * len(lines)
    at = 0
    while at < len(lines):
        end = _pasted_until(lines, at)
        marks[at:end] = [True] * (end - at)
        at = max(end, at + 1)
    _mark_code(lines, marks)
    yield from zip(lines, marks, strict=True)


def _pasted_until(lines: list[str], at: int) -> int:
    """Return the line behind the paste that begins at line ``at``; ``at`` where none does.

    A wrapper that closes in the middle of a line leaves the rest of that line in ``lines``.
    """
    line = lines[at]
    if len(line) > _LONGEST_LINE and line.count(" ") < len(line) // _SPACES_OF_PROSE:
        return at + 1
    if wrapper := _WRAPPER.match(line):
        return _closed(lines, at, wrapper[1])
    if fence := _FENCE.match(line):
        # The closing fence has the character of the opening one, is as long, and stands alone.
        closing = re.compile(rf" {{0,3}}{re.escape(fence[1][0])}{{{len(fence[1])},}}\s*$")
        return _first(lines, at + 1, closing) + 1
    if _TRACEBACK.match(line):
        return _traceback_end(lines, at + 1)
    if _DIFF.match(line):
        while at < len(lines) and _DIFF_LINE.match(lines[at]):
            at += 1
        return at
    return at + 1 if _FRAME.match(line) or _LOG.match(line) else at


def _closed(lines: list[str], at: int, name: str) -> int:
    """Return the line behind the closing tag ``name``; a rest on the same line stays to be read."""
    closing = re.compile(rf"</{name}\b[^>]*>", re.IGNORECASE)
    for position in range(at, len(lines)):
        if match := closing.search(lines[position][:_LONGEST_LINE]):
            rest = lines[position][match.end() :]
            if not rest.strip():
                return position + 1
            lines[position] = rest
            return position
    return len(lines)


def _first(lines: list[str], start: int, pattern: re.Pattern[str]) -> int:
    """Return the first line from ``start`` that ``pattern`` matches, else the last line."""
    for position in range(start, len(lines)):
        if pattern.match(lines[position]):
            return position
    return len(lines) - 1


def _traceback_end(lines: list[str], at: int) -> int:
    """Return the line behind the exception that ends a Python traceback, and those chained to it.

    Frames are indented; the first line that is not names the exception.
    """
    while at < len(lines) and (not lines[at].strip() or lines[at][0] in " \t"):
        at += 1
    at = min(at + 1, len(lines))
    following = at
    while following < len(lines) and not lines[following].strip():
        following += 1
    if following < len(lines) and _CHAINED.match(lines[following]):
        return following + 1
    return at


def _mark_code(lines: list[str], marks: list[bool]) -> None:
    """Mark runs of lines that look like code or JSON; blank lines neither end nor make a run."""
    run: list[int] = []
    for at, line in enumerate([*lines, "."]):
        if at < len(lines) and not marks[at] and (not line.strip() or _CODE.match(line)):
            run.append(at)
            continue
        if sum(1 for position in run if lines[position].strip()) >= _CODE_RUN:
            for position in run:
                marks[position] = True
        run = []


# --- the line of a paste that says most --------------------------------------------------------

_EXCEPTION = re.compile(
    r"\s*(?:E\s+|Uncaught\s+|Unhandled\s+|Caused by:\s+|Exception in thread \S+\s+|panic:\s+)?"
    r"(?:[\w$]+[.:/]+)*[A-Z]\w*(?:Error|Exception|Warning|Interrupt|Fault|Failure)\b"
)
_ERROR = re.compile(
    r"\b(?:error|fatal|failed|failure|panic|exception|denied|refused|cannot)\b", re.IGNORECASE
)


def _telling(pasted: str) -> str:
    """Return the last exception of ``pasted``, else its first error, else its first lines."""
    lines = [line[:_LONGEST_LINE] for line in pasted.split("\n")]
    for line in reversed(lines):
        if _EXCEPTION.match(line):
            return line
    for line in lines:
        if _ERROR.search(line):
            stamp = _LOG.match(line)
            return line[stamp.end() :] if stamp else line
    return "\n".join(
        line for line in lines if not _FENCE.match(line) and not _WRAPPER_LINE.fullmatch(line)
    )


# --- one line of bounded length ----------------------------------------------------------------


def _tidy(text: str) -> str:
    """Return ``text`` on one line without white space or unprintable characters at its ends."""
    return " ".join(text.replace("\ufeff", " ").replace("\u200b", " ").split())


def _shrink(text: str, max_chars: int) -> str:
    """Return ``text`` cut to ``max_chars``: its first and its last half, at spaces."""
    if len(text) <= max_chars:
        return text
    half = (max_chars - len(" … ")) // 2
    head, tail = text[:half], text[-half:]
    # A text without spaces is cut where it stands.
    head = head[: head.rfind(" ")] if " " in head[half // 2 :] else head
    tail = tail[tail.find(" ") + 1 :] if " " in tail[: half // 2] else tail
    return f"{head} … {tail}"


# --- chatter -----------------------------------------------------------------------------------

# Words that steer a conversation that is under way and name nothing. A prompt made only of them
# asks no note anything. "deploy", "build", "review" and the like are left out on purpose: how
# something is deployed is what notes are for.
_CHATTER = frozenset(
    """
    yes yeah yep yup ya yea y no nope nah n ok okay okey k kk sure fine good great nice cool
    perfect awesome excellent amazing wonderful lovely brilliant sweet neat wow correct right
    exactly indeed absolutely definitely agreed agree alright thanks thank thx ty cheers please
    pls plz sorry oops hmm hm uh um ah oh well so now then and but or also too just only really
    very much more again still already yet not hi hello hey yo bye goodbye morning evening today
    later lol haha heh omg damn whoa you u your i i'm im i'll me my we us let's lets let it its
    it's that that's thats this these those they them there here the a b an all both everything
    anything something nothing one ones go goes going ahead on continue continues proceed next
    keep carry resume start begin stop wait hold pause cancel abort done finished finish
    complete ready do does did don't dont make try retry redo undo revert back rerun run commit
    push merge ship land amend squash pr test tests fix fixed looks look seems sounds lgtm works
    worked working work doesn't doesnt didn't didnt isn't isnt broken can could would will shall
    should be is are was were am been has have had for to of in with at from as up out if want
    like love need think guess know see got get give take first second third last other another
    option choice number step steps change changes apply accept approve approved save plan
    execute implement bit little way enough same different approach whatever job time times
    explain elaborate clarify repeat rephrase shorten summarize summarise pleased happy welcome
    file files round around shorter longer simpler both two three you're youre were right had

    ja jo jep nein doch gut super prima passt genau danke bitte weiter mach mache machen
    weitermachen das es jetzt nochmal noch mal einmal wieder klar gern gerne stimmt richtig
    alles fertig los sieht aus und dann aber auch hallo guten ich du wir ist sehr schön perfekt
    klasse

    oui non ouais merci parfait bien très génial vas continue continuer encore fais fait faites
    ça va d'accord bonjour salut s'il te plaît plait vous c'est bon bonne suivant suite allez ok
    et tout

    sí si vale gracias perfecto muy bueno buena genial sigue continúa continua adelante hazlo
    otra vez por favor hola claro siguiente listo de acuerdo dale está esta eso y
    """.split()  # noqa: SIM905  (a list of hundreds of literals would be a page each)
)
_CHATTER_PHRASES = (
    "how are you",
    "how is it going",
    "how's it going",
    "what's up",
    "whats up",
    "what's next",
    "whats next",
    "what is next",
    "what should we do next",
    "what should i do next",
    "what do you think",
    "anything else",
    "what else",
)
# With one more word at most they ask about the turn before: "why?", "but how", "so what".
_BARE_QUESTIONS = frozenset(
    ("why", "how", "what", "who", "where", "when", "which", "warum", "wie", "pourquoi", "qué")
)
_CJK_CHATTER = re.compile(
    "|".join(
        sorted(
            """
            好的 好 好吧 好了 很好 不错 是的 是 对 对的 嗯 可以 可以的 行 继续 繼續 谢谢
            謝謝 多谢 请 請 吧 了 的 没问题 没事 不 不是 不用 提交 下一步 下一个 再试一次
            再来一次 重试 开始 完成 就这样 执行 做 你好 然后 明白 收到 辛苦 吗 呢 啊 先 都
            它 这个 はい いいえ うん ええ お願いします お願い 続けて 続き ください
            ありがとうございます ありがとう いいね いいです いい 良い 了解 そうです そう
            して 進めて 次 へ やって もう一度 大丈夫 オッケー オーケー どうぞ です ます ね
            よ
            """.split(),  # noqa: SIM905  (as above)
            key=len,
            reverse=True,
        )
    )
)
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_DRAWN_OUT = re.compile(r"(.)\1{2,}")
_MOST_CHATTER_WORDS = 40  # whoever writes more than that says something


def contentless(text: str) -> bool:
    """Whether ``text`` is made of chatter, numbers and signs alone: "ok, go on", "👍", "2"."""
    # The most characters that so many words of chatter have, with room for signs.
    if len(text) > _MOST_CHATTER_WORDS * 12:
        return False
    plain = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    if _information(plain) < _SHORTEST:
        return True
    words = _WORD.findall(plain)
    if len(words) > _MOST_CHATTER_WORDS:
        return False
    if len(words) <= 2 and all(word in _BARE_QUESTIONS or _is_chatter(word) for word in words):
        return True
    spoken = f" {' '.join(words)} "
    for phrase in _CHATTER_PHRASES:
        spoken = spoken.replace(f" {phrase} ", " ")
    return all(map(_is_chatter, spoken.split()))


def _is_chatter(word: str) -> bool:
    """Whether ``word`` is a number, of the vocabulary, or drawn out of it ("yesss")."""
    rest = _CJK_CHATTER.sub("", word)
    return (
        rest.isdecimal() or not rest or rest in _CHATTER or _DRAWN_OUT.sub(r"\1", rest) in _CHATTER
    )


def _information(text: str) -> int:
    """Return how much ``text`` says, in Latin letters."""
    # Scripts from U+2E80 on are those that write a syllable or a word in one character.
    return sum(_IDEOGRAPH if letter >= "\u2e80" else 1 for letter in text if letter.isalnum())
