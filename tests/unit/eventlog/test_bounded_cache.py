"""The cache keeps what was used last within its bound, whatever is put into it and from how many threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from hypothesis import given
from hypothesis import strategies as st

from custody.eventlog import BoundedCache


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 12), st.booleans())), st.integers(0, 20))
def test_costs_never_exceed_the_bound_and_the_last_used_stay(uses: list[tuple[int, int, bool]], bound: int) -> None:
    cache: BoundedCache[int, int] = BoundedCache(bound)
    model: dict[int, int] = {}
    for key, cost, is_get in uses:
        if is_get:
            found = cache.get(key)
            assert found == model.get(key)
            if key in model:
                model[key] = model.pop(key)
            continue
        cache.put(key, cost, cost)
        model.pop(key, None)
        if cost <= bound:
            model[key] = cost
        while sum(model.values()) > bound:
            model.pop(next(iter(model)))
        assert set(cache) == set(model)
        assert cache.cost == sum(model.values()) <= bound


def test_a_dropped_key_is_gone_and_costs_nothing() -> None:
    cache: BoundedCache[str, str] = BoundedCache(10)
    cache.put("a", "x", 4)
    cache.drop("a")
    cache.drop("never kept")
    assert cache.get("a") is None
    assert (cache.cost, len(cache)) == (0, 0)


def test_threads_may_use_it_at_once() -> None:
    cache: BoundedCache[int, int] = BoundedCache(50)

    def use(seed: int) -> None:
        for step in range(3000):
            key = (seed * 7919 + step * 31) % 100
            value = cache.get(key)
            assert value in (None, key)
            cache.put(key, key, 1 + key % 5)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(use, range(8)))
    assert 0 < cache.cost <= 50
