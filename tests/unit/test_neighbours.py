"""Exact search and the graph: agreement, edges, deletions, growth."""

from __future__ import annotations

import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompt_rag import neighbours
from prompt_rag.domain import Changes
from prompt_rag.neighbours import ExactIndex, HnswIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from prompt_rag.domain import Matrix, VectorIndex

    Make = Callable[[Iterable[int], Matrix], VectorIndex]

DIM = 384


def clustered(
    count: int, *, dim: int = DIM, clusters: int = 100, spread: float = 0.6, seed: int = 0
) -> Matrix:
    """Return unit vectors around random centres, as passages lie around topics."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((clusters, dim))
    vectors = centres[rng.integers(0, clusters, count)]
    vectors = vectors + spread * rng.standard_normal((count, dim))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit.astype(np.float32)


def added(labels: Iterable[int], vectors: Matrix, upto: int = 1) -> Changes:
    none = np.empty(0, dtype=np.int64)
    return Changes(upto, np.array(list(labels), dtype=np.int64), vectors, none)


def removed(labels: Iterable[int], dim: int = DIM, upto: int = 1) -> Changes:
    none = np.empty(0, dtype=np.int64)
    empty = np.empty((0, dim), dtype=np.float32)
    return Changes(upto, none, empty, np.array(list(labels), dtype=np.int64))


def exact_of(labels: Iterable[int], vectors: Matrix) -> ExactIndex:
    return ExactIndex(np.array(list(labels), dtype=np.int64), vectors)


def graph_of(labels: Iterable[int], vectors: Matrix) -> HnswIndex:
    index = HnswIndex(vectors.shape[1])
    index.apply(added(labels, vectors))
    return index


def agreement(one: VectorIndex, other: VectorIndex, queries: Matrix, k: int = 10) -> float:
    """Return the mean share of the k nearest that both name."""
    shares = []
    for query in queries:
        mine, theirs = (set(index.knn(query, k)[0].tolist()) for index in (one, other))
        assert len(mine) == len(theirs)
        shares.append(len(mine & theirs) / len(mine))
    return float(np.mean(shares))


BOTH = pytest.mark.parametrize("make", [exact_of, graph_of])


# --- both ---------------------------------------------------------------------------------------


@BOTH
def test_the_nearest_come_first_with_their_cosine_distance(make: Make) -> None:
    vectors = np.array([[1, 0], [0, 1], [-1, 0], [3, 3]], dtype=np.float32)
    labels, distances = make([10, 11, 12, 13], vectors).knn(np.array([2, 0], np.float32), 4)
    assert labels.tolist() == [10, 13, 11, 12]
    assert labels.dtype == np.int64
    assert distances.dtype == np.float32
    assert distances == pytest.approx([0, 1 - np.sqrt(0.5), 1, 2], abs=1e-6)


@BOTH
def test_an_empty_index_answers_empty(make: Make) -> None:
    index = make([], np.empty((0, DIM), dtype=np.float32))
    labels, distances = index.knn(clustered(1)[0], 5)
    assert (len(labels), len(distances), index.live) == (0, 0, 0)
    assert labels.dtype == np.int64


@BOTH
@pytest.mark.parametrize("k", [1, 5, 1000])
def test_more_neighbours_than_passages_are_as_many_as_there_are(make: Make, k: int) -> None:
    vectors = clustered(1)
    labels, distances = make([7], vectors).knn(vectors[0], k)
    assert labels.tolist() == [7]
    assert distances == pytest.approx([0], abs=1e-6)


@BOTH
@pytest.mark.parametrize("k", [0, -3])
def test_no_neighbours_are_none(make: Make, k: int) -> None:
    vectors = clustered(3)
    assert make(range(3), vectors).knn(vectors[0], k)[0].tolist() == []


@BOTH
def test_ten_of_which_eight_are_deleted(make: Make) -> None:
    vectors = clustered(10)
    index = make(range(10), vectors)
    index.apply(removed(range(8), upto=9))
    assert index.live == 2
    assert index.change_no == 9
    assert sorted(index.knn(vectors[0], 10)[0].tolist()) == [8, 9]
    index.apply(removed([8, 9]))
    assert index.knn(vectors[0], 10)[0].tolist() == []
    index.apply(added([10], vectors[:1], upto=12))
    assert index.knn(vectors[0], 10)[0].tolist() == [10]


@BOTH
@pytest.mark.parametrize("k", [1, 10, 300, 500, 600])
def test_five_hundred_equal_vectors(make: Make, k: int) -> None:
    vectors = np.repeat(clustered(1), 500, axis=0)
    labels, distances = make(range(500), vectors).knn(vectors[0], k)
    assert len(set(labels.tolist())) == min(k, 500)
    assert distances == pytest.approx(np.zeros(min(k, 500)), abs=1e-5)


@BOTH
def test_what_is_applied_twice_is_applied_once(make: Make) -> None:
    vectors = clustered(20)
    index = make(range(20), vectors)
    for _ in range(2):
        index.apply(removed([3, 99]))
        index.apply(added([5, 20], vectors[:2]))
    assert index.live == 20
    assert sorted(index.knn(vectors[0], 50)[0].tolist()) == [*range(3), *range(4, 21)]


@BOTH
def test_an_index_grows_from_nothing(make: Make) -> None:
    vectors = clustered(2600)
    index = make([], vectors[:0])
    for start, stop in ((0, 1), (1, 11), (11, 1500), (1500, 2600)):
        index.apply(added(range(start, stop), vectors[start:stop]))
        assert index.live == stop
        assert index.knn(vectors[stop - 1], 1)[0].tolist() == [stop - 1]
        assert len(index.knn(vectors[0], stop)[0]) == stop


@BOTH
@pytest.mark.parametrize(
    "query", [np.zeros(3), np.full(DIM, np.nan), np.full(DIM, np.inf), np.zeros((1, DIM))]
)
def test_what_is_no_query_is_refused(make: Make, query: NDArray[np.float64]) -> None:
    with pytest.raises(ValueError, match="finite vector of 384"):
        make(range(2), clustered(2)).knn(query.astype(np.float32), 1)


@BOTH
def test_zeros_are_at_distance_one_of_everything(make: Make) -> None:
    vectors = clustered(4)
    vectors[2] = 0
    index = make(range(4), vectors)
    assert index.knn(vectors[2], 4)[1] == pytest.approx([1, 1, 1, 1])
    distances = dict(zip(*(each.tolist() for each in index.knn(vectors[0], 4)), strict=True))
    assert distances[2] == pytest.approx(1)


@BOTH
def test_equal_distances_are_ordered_by_label(make: Make) -> None:
    vectors = np.eye(8, dtype=np.float32)
    labels, _ = make([5, 3, 9, 1, 8, 2, 7, 4], vectors).knn(np.ones(8, np.float32), 8)
    assert labels.tolist() == [1, 2, 3, 4, 5, 7, 8, 9]


def test_exact_search_cuts_equal_distances_by_label_too() -> None:
    index = exact_of([5, 3, 9, 1], np.eye(4, dtype=np.float32))
    assert index.knn(np.ones(4, np.float32), 2)[0].tolist() == [1, 3]
    assert not index.worn


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(1, 80), st.integers(0, 2**31))
def test_exact_search_is_a_sort_of_all_distances(count: int, k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((count, 5)).astype(np.float32)
    query = rng.standard_normal(5).astype(np.float32)
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    labels, distances = exact_of(range(count), vectors).knn(query, k)
    assert distances == pytest.approx(np.sort(1 - cosines)[:k], abs=1e-5)
    assert (1 - cosines)[labels] == pytest.approx(distances, abs=1e-5)


# --- the graph ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def large() -> tuple[HnswIndex, ExactIndex, Matrix]:
    """Return a graph and exact search over 10,000 passages, and 200 queries near them."""
    vectors = clustered(10_000, clusters=200)
    rng = np.random.default_rng(9)
    near = vectors[rng.integers(0, len(vectors), 200)]
    queries = (near + 0.03 * rng.standard_normal(near.shape)).astype(np.float32)
    return graph_of(range(10_000), vectors), exact_of(range(10_000), vectors), queries


def test_the_graph_agrees_with_exact_search_before_and_after_a_reload(
    large: tuple[HnswIndex, ExactIndex, Matrix], tmp_path: Path
) -> None:
    graph, exact, queries = large
    assert agreement(graph, exact, queries) >= 0.99
    for query in queries[:20]:
        assert graph.knn(query, 10)[1] == pytest.approx(exact.knn(query, 10)[1], abs=1e-5)
    path = tmp_path / "graph"
    assert graph.save(path) == path.stat().st_size
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = HnswIndex.restore(path, DIM, [], graph.change_no)
    assert again.live == 10_000
    for query in queries:  # the candidates looked at are not part of the file
        assert again.knn(query, 10)[0].tolist() == graph.knn(query, 10)[0].tolist()
    assert graph.share_found(1000) >= 0.999


def test_the_graph_agrees_where_vectors_are_hard_to_tell_apart() -> None:
    vectors = clustered(3000, clusters=3)
    graph, exact = graph_of(range(3000), vectors), exact_of(range(3000), vectors)
    assert agreement(graph, exact, clustered(100, clusters=3, seed=0)) >= 0.99


def test_the_same_passages_make_the_same_graph(tmp_path: Path) -> None:
    vectors = clustered(400)
    for name in ("one", "two"):
        graph_of(range(400), vectors).save(tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_graph_that_lost_passages_behind_a_crowd_says_so() -> None:
    crowd, others = np.repeat(clustered(1), 1000, axis=0), clustered(300, seed=4)
    graph = graph_of(range(1300), np.concatenate([others, crowd]))
    assert graph.share_found(1000) < 0.99
    assert graph_of(range(300), others).share_found(1000) == 1.0


def test_zeros_do_not_count_as_lost_and_nothing_as_found() -> None:
    vectors = clustered(10)
    vectors[3] = 0
    assert graph_of(range(10), vectors).share_found(5) == 1.0
    assert HnswIndex(DIM).share_found(5) == 1.0


def test_a_graph_deletes_and_adds_as_brute_force_would() -> None:
    dim = 32
    pool = clustered(2400, dim=dim, clusters=30)
    rng = np.random.default_rng(11)
    live = dict(enumerate(pool[:500]))
    graph = graph_of(live, np.stack(list(live.values())))
    exact = exact_of(live, np.stack(list(live.values())))
    gone = rng.permutation(500)[:150].tolist()
    for index in (graph, exact):
        index.apply(removed(gone, dim))
    for label in gone:
        del live[label]
    shares = []
    for turn in range(900):
        victim = list(live)[int(rng.integers(len(live)))]
        label = 500 + turn
        del live[victim]
        live[label] = pool[label]
        change = Changes(
            turn, np.array([label]), pool[label][np.newaxis], np.array([victim], dtype=np.int64)
        )
        graph.apply(change)
        exact.apply(change)
        query = pool[int(rng.integers(len(pool)))]
        found = graph.knn(query, 10)[0].tolist()
        assert set(found) <= live.keys()
        assert len(found) == 10
        shares.append(len(set(found) & set(exact.knn(query, 10)[0].tolist())) / 10)
    assert graph.labels.tolist() == sorted(live)
    assert np.mean(shares) >= 0.99
    assert graph.worn
    assert graph.live == exact.live == 350


def test_a_graph_is_worn_from_the_share_of_deleted_passages_on() -> None:
    graph = graph_of(range(100), clustered(100))
    graph.apply(removed(range(30)))
    assert not graph.worn
    graph.apply(removed([30]))
    assert graph.worn
    assert graph.deleted == list(range(31))


def test_more_than_there_are_is_no_reason_to_compare_every_passage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = graph_of(range(30), clustered(30))
    graph.apply(removed([3]))
    monkeypatch.setattr(graph, "vectors", None)
    assert len(graph.knn(clustered(1)[0], 1000)[0]) == 29


def test_where_the_graph_cannot_reach_enough_every_passage_is_compared(tmp_path: Path) -> None:
    vectors = clustered(300)
    graph = graph_of(range(300), vectors)
    exact = exact_of(range(300), vectors)
    real, asked = graph._graph, []

    class Unreachable:
        """hnswlib's graph, none of whose queries reach anything."""

        def __getattr__(self, name: str) -> object:
            return getattr(real, name)

        def knn_query(self, *_args: object, k: int, **_named: object) -> object:
            asked.append((k, real.ef))
            raise RuntimeError("Cannot return the results in a contiguous 2D array")

    graph._graph = Unreachable()
    labels, distances = graph.knn(vectors[0], 12)
    expected = exact.knn(vectors[0], 12)
    assert labels.tolist() == expected[0].tolist()
    assert distances == pytest.approx(expected[1], abs=1e-5)
    assert asked == [(12, 256), (12, 1024)]


def test_a_save_that_wrote_less_than_it_should_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(range(10), clustered(10))

    class Full:
        """hnswlib's graph on a full disk: it writes a part and says nothing."""

        def save_index(self, path: bytes) -> None:
            Path(path.decode()).write_bytes(b"part")

        def index_file_size(self) -> int:
            return 1000

    monkeypatch.setattr(graph, "_graph", Full())
    with pytest.raises(OSError, match="4 bytes written instead of 1000"):
        graph.save(tmp_path / "graph")


def test_a_query_does_not_wait_for_other_cores(
    large: tuple[HnswIndex, ExactIndex, Matrix],
) -> None:
    graph, _, queries = large
    cpu, wall = time.process_time(), time.perf_counter()
    for query in queries:
        graph.knn(query, 10)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert cpu <= wall * 1.5 + 0.05


# --- without hnswlib ----------------------------------------------------------------------------


def test_hnswlib_is_there() -> None:
    assert neighbours.hnswlib_problem() is None


def test_without_hnswlib_exact_search_works_and_the_reason_is_told() -> None:
    program = """
import sys
sys.modules["hnswlib"] = None  # what an import that fails looks like
import numpy as np
from prompt_rag.neighbours import ExactIndex, HnswIndex, hnswlib_problem
index = ExactIndex(np.array([4]), np.ones((1, 3), dtype=np.float32))
assert index.knn(np.ones(3, dtype=np.float32), 5)[0].tolist() == [4]
try:
    HnswIndex(3)
except ImportError as exc:
    assert str(exc) == hnswlib_problem()
    print(exc)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "hnswlib" in done.stdout
