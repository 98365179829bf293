"""``search`` and ``explain``."""

from __future__ import annotations

from typing import Any

import pytest
from cli_world import FAR, QUESTION, TLDR, CommandLine

from prompt_rag.cli.words import WORDS
from prompt_rag.domain import Reason
from prompt_rag.rendering import HEADER

CANDIDATE_KEYS = {
    "note",
    "source",
    "title",
    "uri",
    "also",
    "kind",
    "heading_path",
    "distance",
    "rank",
    "whole_note",
}


def results(run: CommandLine, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run("search", *arguments, "--json").json["results"]
    return found


def notes(found: list[dict[str, Any]]) -> list[str]:
    return [each["note"] for each in found]


# --- search -------------------------------------------------------------------------------------


def test_search_lists_and_marks(built: CommandLine) -> None:
    result = built("search", QUESTION)
    head, first = result.out.splitlines()
    assert head.split() == ["distance", "note", "heading", "where"]
    mark, distance, *_ = first.split()
    assert mark == "*"
    assert 0 < float(distance) < 0.5
    assert "Rotating the wiki token" in first
    assert str(built.notes / "work/wiki-token.md") in first
    assert result.err == "* the hook would inject it\n"


def test_search_as_a_document(built: CommandLine) -> None:
    document = built("search", QUESTION, "--json").json
    assert set(document) == {"query", "results"}
    assert document["query"] == QUESTION
    (first,) = document["results"]
    assert set(first) >= {*CANDIDATE_KEYS, "injects"}
    assert (first["note"], first["source"], first["kind"]) == (
        "work/wiki-token.md",
        "notes",
        "tldr",
    )
    assert (first["rank"], first["injects"], first["also"]) == (1, True, [])


def test_search_lists_what_the_hook_refuses(built: CommandLine) -> None:
    config = built.home / "config.toml"
    config.write_text(config.read_text().replace("max_distance = 0.5", "max_distance = 0.05"))
    (first,) = results(built, QUESTION)
    assert first["injects"] is False
    assert built("explain", QUESTION, "--json").json["reason"] == "too-far"
    result = built("search", QUESTION)
    assert "*" not in result.out
    assert result.err == ""


def test_search_says_where_nothing_is_near(built: CommandLine) -> None:
    result = built("search", FAR)
    assert (result.code, result.out, result.err) == (0, "", "nothing within distance 0.80\n")
    assert results(built, FAR) == []


def far_too(run: CommandLine) -> None:
    config = run.home / "config.toml"
    config.write_text(config.read_text().replace("= 0.8", "= 2.0"))


def test_search_lists_at_most_k(built: CommandLine) -> None:
    far_too(built)
    assert len(results(built, QUESTION)) == 4
    assert notes(results(built, QUESTION, "-k", "2")) == notes(results(built, QUESTION))[:2]
    assert built("search", QUESTION, "-k", "0").code == 2


def test_search_by_any_of_the_tags(built: CommandLine) -> None:
    far_too(built)
    assert notes(results(built, QUESTION, "--tag", "kitchen")) == ["home/rye-bread.md"]
    both = results(built, QUESTION, "--tag", "#garden", "--tag", "kitchen")
    assert set(notes(both)) == {"home/rye-bread.md", "home/tomatoes.md"}
    assert notes(results(built, QUESTION, "--tag", "work")) == ["work/wiki-token.md"]
    assert results(built, QUESTION, "--tag", "nobody") == []


def test_a_mark_is_the_hook_s_word_on_all_notes(built: CommandLine) -> None:
    """Alone among the notes of its tag a note has no rival; the hook sees the others."""
    for key, tag in (("one.md", "left"), ("two.md", "right")):
        text = "The boiler in the cellar needs more water once its gauge is below one bar."
        built.write(key, f"# Boiler pressure {tag}\n\n{text} It stands on the {tag} side. #{tag}")
    config = built.home / "config.toml"
    config.write_text(config.read_text().replace("min_gap = 0.05", "min_gap = 0.4"))
    built.write("three.md", "# Heating\n\nAsk the plumber when the boiler loses pressure again.")
    built("sync", "--quiet")
    query = "what to do when the boiler loses pressure"
    assert built("explain", query, "--json").json["reason"] == "gap-too-small"
    (only,) = results(built, query, "--tag", "left")
    assert only["injects"] is False


def test_search_in_one_source(built: CommandLine, tmp_path_factory: pytest.TempPathFactory) -> None:
    more = tmp_path_factory.mktemp("more")
    (more / "wiki.md").write_text("# Wiki\n\nThe wiki of the choir has its own token for guests.")
    built("source", "add", "markdown", more, "--name", "choir")
    built("sync", "--quiet")
    assert notes(results(built, QUESTION, "--source", "choir")) == ["wiki.md"]
    assert "wiki.md" not in notes(results(built, QUESTION, "--source", "notes"))
    result = built("search", QUESTION, "--source", "quire")
    assert result.hint == "prompt-rag source list"
    assert "it has: choir, notes" in result.err


def test_the_same_text_twice_is_one_line(built: CommandLine) -> None:
    copy = (built.notes / "home/rye-bread.md").read_text()
    built.write("exported/rye.md", copy)
    built("sync", "--quiet")
    (first,) = results(built, "rye bread with sourdough")
    assert len(first["also"]) == 1
    assert {first["uri"], *first["also"]} == {
        str(built.notes / "home/rye-bread.md"),
        str(built.notes / "exported/rye.md"),
    }


def test_search_needs_a_query(built: CommandLine) -> None:
    assert built("search", " ").code == 2
    assert built("search").code == 2


def test_search_without_index(run: CommandLine) -> None:
    assert run("search", "x").hint == "prompt-rag rebuild"
    assert not run.home.exists()


def test_bytes_that_are_no_text(built: CommandLine) -> None:
    query = b"rotate the wiki token \xff".decode("utf-8", "surrogateescape")
    document = built("search", query, "--json").json
    assert document["query"] == "rotate the wiki token \ufffd"
    assert notes(document["results"]) == ["work/wiki-token.md"]
    assert built("explain", query, "--json").json["outcome"] == "inject"
    assert built("inspect", query).code == 1


# --- explain ------------------------------------------------------------------------------------

EXPLAIN_KEYS = {
    "outcome",
    "reason",
    "query",
    "best_distance",
    "gap",
    "thresholds",
    "candidates",
    "block",
    "chars",
    "timings_ms",
    "generation",
    "model",
}


def test_explain_an_injection(built: CommandLine) -> None:
    document = built("explain", QUESTION, "--json").json
    assert set(document) == EXPLAIN_KEYS
    assert (document["outcome"], document["reason"]) == ("inject", "confident")
    assert document["query"].startswith("how do we rotate the wiki token")
    assert document["thresholds"]["max_distance"] == 0.5
    assert document["thresholds"]["min_gap"] == 0.05
    first, *others = document["candidates"]
    assert len(others) == 3
    for each in document["candidates"]:
        assert set(each) >= {*CANDIDATE_KEYS, "accepted", "verdict", "probability", "contributions"}
    assert (first["note"], first["kind"], first["heading_path"]) == (
        "work/wiki-token.md",
        "tldr",
        [],
    )
    assert [each["rank"] for each in document["candidates"]] == [1, 2, 3, 4]
    assert first["accepted"] is True
    assert first["verdict"]
    assert document["best_distance"] == pytest.approx(first["distance"], abs=1e-4)
    assert document["block"].startswith(HEADER)
    assert TLDR in document["block"]
    assert document["chars"] == len(document["block"])
    assert set(document["timings_ms"]) == {"parse", "embed", "search", "decide", "render", "total"}
    assert document["model"] == "all-MiniLM-L6-v2-int8"
    assert document["generation"]


def test_explain_an_abstention(built: CommandLine) -> None:
    document = built("explain", FAR, "--json").json
    assert set(document) == EXPLAIN_KEYS
    assert (document["outcome"], document["reason"]) == ("abstain", "too-far")
    assert (document["block"], document["chars"]) == (None, 0)
    assert not any(each["accepted"] for each in document["candidates"])
    document = built("explain", "yes", "--json").json
    assert set(document) == EXPLAIN_KEYS
    assert (document["reason"], document["query"], document["candidates"]) == (
        "contentless",
        "",
        [],
    )
    assert document["thresholds"] is document["best_distance"] is None


def test_explain_for_a_person(built: CommandLine) -> None:
    lines = built("explain", QUESTION).out.splitlines()
    assert lines[0] == "inject: a note is near enough and stands out (confident)"
    assert lines[1] == "looked up: how do we rotate the wiki token?"
    assert lines[2].startswith("thresholds: max_distance 0.500, min_gap 0.050")
    assert any(line.startswith("in ") and "Rotating the wiki token" in line for line in lines)
    assert any(line.startswith("out") for line in lines)
    assert HEADER in lines
    out = built("explain", FAR).out
    assert out.startswith("stay silent: no note is near enough (too-far)\n")
    assert HEADER not in out
    assert built("explain", "").out == "stay silent: there is no text (empty)\n"


def test_explain_reads_stdin(built: CommandLine) -> None:
    prompt = QUESTION + "\n```\n" + "log line\n" * 500 + "```\n"
    document = built("explain", "-", "--json", stdin=b"\xef\xbb\xbf" + prompt.encode()).json
    assert document["outcome"] == "inject"
    assert "log line" not in document["query"]
    assert built("explain", "-", "--json", stdin=b"\xff\xfe").json["outcome"] == "abstain"
    assert built("explain", "-", "--json", stdin=b"").json["reason"] == "empty"


def test_explain_knows_the_words_that_a_person_may_type(built: CommandLine) -> None:
    assert built("explain", f"{QUESTION} #nonotes", "--json").json["reason"] == "switched-off"
    document = built("explain", "boiling tomatoes in bread #notes", "--json").json
    assert document["outcome"] == "inject"
    assert "#notes" not in document["query"]


def test_explain_says_that_the_hook_is_paused(built: CommandLine) -> None:
    built("pause", "forever")
    result = built("explain", QUESTION)
    assert result.out.startswith("inject: ")
    assert "paused" in result.err
    assert built("explain", QUESTION, "--json").json["outcome"] == "inject"


def test_explain_without_index(run: CommandLine) -> None:
    assert run("explain", QUESTION).hint == "prompt-rag rebuild"


def test_every_reason_has_words() -> None:
    assert set(WORDS) == set(Reason)
