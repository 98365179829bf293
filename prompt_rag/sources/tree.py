"""The files below a folder that may be notes: which are meant, by what key, and which are not.

Folders are listed, files are not opened here. Links to folders are not followed, so there are no
loops; a link to a file is, if what it leads to lies below the same folder and is not left out.
"""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from prompt_rag.domain import Skipped
from prompt_rag.sources import files
from prompt_rag.sources.globs import Globs

_PASSED_OVER = frozenset({"node_modules"})  # beside hidden names, .git and .trash among them


@dataclass(frozen=True, slots=True)
class Item:
    """A file or folder: its path, its key, and its ``place`` below the root in NFC.

    The key is the place, except where two names beside each other differ by normalisation only:
    there each keeps its exact spelling.
    """

    path: str
    key: str
    place: str


@dataclass(frozen=True, slots=True)
class Scope:
    """The places a walk is limited to, below the root and in NFC; "" is the root itself."""

    targets: frozenset[str]
    above: frozenset[str]

    @classmethod
    def of(cls, root: str, paths: Collection[Path]) -> Scope:
        """Take those of the absolute ``paths`` that lie below ``root``, linked or not."""
        places: set[str] = set()
        real_root = os.path.realpath(root)
        for path in paths:
            absolute = os.path.normpath(path)
            folder, name = os.path.split(absolute)
            real = f"{os.path.realpath(folder)}/{name}"
            for candidate, base in ((absolute, root), (real, real_root)):
                place = nfc(os.path.relpath(candidate, base))
                if place.split("/", 1)[0] != "..":
                    places.add("" if place == "." else place)
        above = frozenset(above for place in places for above in _ancestors(place))
        return cls(frozenset(places), above)

    def holds(self, place: str) -> bool:
        """Whether ``place`` is a target or below one."""
        return place in self.targets or any(above in self.targets for above in _ancestors(place))

    def leads_to(self, place: str) -> bool:
        """Whether the folder ``place`` is a target, below one or above one."""
        return place in self.above or self.holds(place)


EVERYTHING = Scope(frozenset({""}), frozenset())


class Tree:
    """The files below ``root`` with one of ``suffixes``, less what the patterns leave out."""

    def __init__(
        self, root: str, suffixes: tuple[str, ...], include: Globs, exclude: Globs
    ) -> None:
        self.root = root
        self._suffixes = suffixes
        self._include = include
        self._exclude = exclude

    def walk(self, scope: Scope = EVERYTHING) -> Iterator[Item | Skipped]:
        """Yield the files of ``scope``, those of a folder before its subfolders, by name.

        A folder that cannot be listed is a ``Skipped`` to keep whose key ends in a slash.
        """
        waiting = [Item(self.root, "", "")]
        while waiting:
            folder = waiting.pop()
            try:
                entries = _listed(folder.path)
            except FileNotFoundError:  # gone since its parent was listed
                continue
            except (OSError, files.LeftOut) as error:
                why = error.why if isinstance(error, files.LeftOut) else files.why_unread(error)
                yield Skipped(f"{folder.key}/", why, keep=True)
                continue
            subfolders: list[Item] = []
            for entry, item in _items(folder, entries):
                if self._exclude.match(item.place):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _PASSED_OVER and scope.leads_to(item.place):
                        subfolders.append(item)
                elif scope.holds(item.place) and self._is_note(item.place):
                    yield self._file(entry, item)
            waiting += reversed(subfolders)

    def _is_note(self, place: str) -> bool:
        named = place.lower().endswith(self._suffixes)
        return named and (not self._include or self._include.match(place))

    def _file(self, entry: os.DirEntry[str], item: Item) -> Item | Skipped:
        try:
            item.key.encode()
        except UnicodeEncodeError:
            shown = os.fsencode(item.key).decode(errors="replace")
            return Skipped(shown, "its name is not UTF-8", keep=False)
        if entry.name.startswith("."):
            return Skipped(item.key, files.NOT_DOWNLOADED, keep=True)
        why = self._why_not_followed(item.path) if entry.is_symlink() else ""
        return Skipped(item.key, why, keep=False) if why else item

    def _why_not_followed(self, path: str) -> str:
        """Say why the link at ``path`` is not followed, "" where it is."""
        target, root = os.path.realpath(path), os.path.realpath(self.root)
        if not target.startswith(root.rstrip("/") + "/"):
            return "a link out of the folder"
        # A link must not bring back what stands in a place that was left out.
        place = nfc(os.path.relpath(target, root))
        parts = place.split("/")
        if any(part.startswith(".") or part in _PASSED_OVER for part in parts):
            return "a link to what is left out"
        if self._exclude.match(place):
            return "a link to what is left out"
        return "" if Path(target).is_file() else "a link that leads to no file"


def nfc(text: str) -> str:
    """Return ``text`` in the normal form in which paths are compared."""
    return unicodedata.normalize("NFC", text)


def _listed(folder: str) -> list[os.DirEntry[str]]:
    if files.is_placeholder(Path(folder).stat()):
        raise files.LeftOut(files.NOT_DOWNLOADED, keep=True)
    with os.scandir(folder) as listing:
        return sorted(listing, key=lambda entry: entry.name)


def _items(
    folder: Item, entries: list[os.DirEntry[str]]
) -> Iterator[tuple[os.DirEntry[str], Item]]:
    """Pair the entries that are not hidden with their items; a placeholder counts as its note."""
    names = {entry.name for entry in entries}
    spellings = Counter(nfc(name) for name in names)
    for entry in entries:
        name = entry.name
        if name.startswith("."):
            # ".note.md.icloud" is the older form of a placeholder for note.md.
            name = name.removeprefix(".").removesuffix(".icloud")
            if entry.name != f".{name}.icloud" or name in names:
                continue
        normal = nfc(name)
        key = name if spellings[normal] > 1 else normal
        place = f"{folder.place}/{normal}" if folder.place else normal
        yield entry, Item(entry.path, f"{folder.key}/{key}" if folder.key else key, place)


def _ancestors(place: str) -> Iterator[str]:
    """Yield the folders above ``place``, the root ("") last."""
    while place:
        place = place.rpartition("/")[0]
        yield place
