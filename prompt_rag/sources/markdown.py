"""A folder of Markdown files as a source of notes.

The folder is the user's: it is walked and read, nothing in it is ever written, and nothing outside
of it is ever read, whatever its links say.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from prompt_rag import segments
from prompt_rag.domain import ConfigError, Gone, Note, Scanned, Skipped, SourceError, Unchanged
from prompt_rag.sources import files, frontmatter, structure
from prompt_rag.sources.globs import Globs
from prompt_rag.sources.tree import EVERYTHING, Item, Scope, Tree, nfc

SUFFIXES = (".md", ".markdown", ".mdown", ".mkd")
# The coarsest clock of a common file system (FAT) ticks every two seconds. A file changed that
# recently may change again within the tick and keep its size, so it gets no fingerprint.
_TICK_SECONDS = 2.0
# Raise it when the same bytes would make another note than before, so that all are read again.
_READING_VERSION = 1
_MAX_TITLE_CHARS = 300  # some five lines; a longer title is a paragraph


class MarkdownSource:
    """Notes from the Markdown files below ``folder``; satisfies :class:`domain.Source`.

    Left out are hidden files and folders, ``node_modules``, links to folders, links to files
    outside of ``folder``, what matches ``exclude`` or, where ``include`` is given, does not match
    it (patterns as in :mod:`prompt_rag.sources.globs`), and notes with a tag of ``exclude_tags``
    or a tag below one. Raises :class:`ConfigError` where a pattern cannot be read.
    """

    def __init__(
        self,
        name: str,
        folder: Path | str,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        exclude_tags: Sequence[str] = (),
    ) -> None:
        self._name = name
        root = os.path.normpath(Path(folder).expanduser().absolute())
        try:
            self._tree = Tree(root, SUFFIXES, Globs(include), Globs(exclude))
        except ValueError as error:
            raise ConfigError(f"source {name}: {error}", "prompt-rag config show") from error
        stripped = (tag.strip("#/ ").casefold() for tag in exclude_tags)
        self._exclude_tags = tuple(sorted({tag for tag in stripped if tag}))
        # Part of every fingerprint: a note is read again when what leaves it out changes.
        told = f"{_READING_VERSION}\0{self._exclude_tags!r}"
        self._stamp = sha256(told.encode()).hexdigest()[:8]

    @property
    def name(self) -> str:
        """The name by which the configuration and the catalog know this source."""
        return self._name

    def scan(
        self, known: Mapping[str, str], paths: Collection[Path] | None = None
    ) -> Iterator[Scanned]:
        """Yield the notes below the folder, those of a folder before its subfolders, by name.

        A file is read only if its size, time of change or inode differ from the fingerprint in
        ``known``. Files that are there but cannot be read now (no permission, not downloaded, too
        slow) are skipped with ``keep``; files that are no notes (binary, not UTF-8, above 2 MB,
        excluded) without, because what was indexed of them is no longer what they hold.
        ``paths`` outside of the folder are ignored.

        Raises :class:`SourceError` where the folder is missing or cannot be listed.
        """
        root = self._tree.root
        try:
            os.scandir(root).close()
        except OSError as error:
            why, hint = {
                FileNotFoundError: ("does not exist", f"prompt-rag source remove {self._name}"),
                NotADirectoryError: ("is not a folder", f"prompt-rag source remove {self._name}"),
            }.get(type(error), (files.why_unread(error), "prompt-rag doctor"))
            raise SourceError(f"source {self._name}: {root} {why}", hint) from error
        scope = EVERYTHING if paths is None else Scope.of(root, paths)
        found = self._found(known, scope, time.time())
        return found if paths is None else _with_gone(found, known, scope)

    def _found(self, known: Mapping[str, str], scope: Scope, started: float) -> Iterator[Scanned]:
        if not scope.targets:
            return
        reader = files.Reader()
        try:
            for item in self._tree.walk(scope):
                if isinstance(item, Item):
                    scanned = self._scanned(item, known, started, reader)
                    if scanned is not None:
                        yield scanned
                    continue
                yield item
                if item.key.endswith("/"):  # a folder that cannot be listed: keep what is known
                    below = item.key.removeprefix("/")
                    for key in known:
                        if key.startswith(below):
                            yield Skipped(key, item.why, keep=True)
        finally:
            reader.close()

    def _scanned(
        self, item: Item, known: Mapping[str, str], started: float, reader: files.Reader
    ) -> Note | Unchanged | Skipped | None:
        """Read one file; None where it is gone since its folder was listed."""
        try:
            status = files.status_of(item.path)
            fingerprint = self._fingerprint(status, started)
            if fingerprint and known.get(item.key) == fingerprint:
                return Unchanged(item.key)
            text = files.decoded(reader.read(item.path))
            return self._note(item, text, status, fingerprint)
        except files.LeftOut as error:
            return Skipped(item.key, error.why, keep=error.keep)
        except FileNotFoundError:
            return None
        except OSError as error:
            return Skipped(item.key, files.why_unread(error), keep=True)

    def _fingerprint(self, status: os.stat_result, started: float) -> str:
        if status.st_mtime > started - _TICK_SECONDS:
            return ""
        return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ino}-{self._stamp}"

    def _note(self, item: Item, text: str, status: os.stat_result, fingerprint: str) -> Note:
        """Make a note of a file's text. Raises :class:`files.LeftOut`."""
        parsed = structure.parse(text)
        told = frontmatter.parse(parsed.frontmatter or "{}")
        if told is None:  # a banner between rules, or YAML that does not parse: the note's own text
            parsed = structure.parse(text, frontmatter=False)
            told = frontmatter.Frontmatter()
        if not told.indexed:
            raise files.LeftOut("prompt-rag: false in its frontmatter", keep=False)
        tags = frontmatter.unique((*told.tags, *parsed.tags))
        if (tag := self._excluded_tag(tags)) is not None:
            raise files.LeftOut(f"excluded by its tag {tag}", keep=False)
        title = told.title or structure.opening_title(parsed.blocks) or Path(item.place).stem
        return Note(
            source=self._name,
            key=item.key,
            title=next(iter(segments.cut(title, _MAX_TITLE_CHARS)), item.key),
            text=parsed.body,
            blocks=structure.without_title(parsed.blocks, title),
            modified_at=told.modified_at or _instant(status.st_mtime),
            created_at=told.created_at,
            tags=tags,
            uri=item.path,
            aliases=told.aliases,
            fingerprint=fingerprint,
        )

    def _excluded_tag(self, tags: Sequence[str]) -> str | None:
        """Return the first of ``tags`` that is excluded or lies below an excluded one."""
        for tag in tags:
            for excluded in self._exclude_tags:
                # "#private about C#" may be the tag "private" or one of three words: the safe
                # reading counts.
                below = (f"{excluded}/", f"{excluded} ")
                if tag.casefold() == excluded or tag.casefold().startswith(below):
                    return tag
        return None


def _with_gone(
    found: Iterator[Scanned], known: Mapping[str, str], scope: Scope
) -> Iterator[Scanned]:
    """Yield what was found, and then the known keys of the scope that were not."""
    seen: set[str] = set()
    for scanned in found:
        seen.add(scanned.key)
        yield scanned
    for key in known:
        if key not in seen and scope.holds(nfc(key)):
            yield Gone(key)


def _instant(seconds: float) -> datetime | None:
    """Return a file's time in UTC, None where its clock was nonsense."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
