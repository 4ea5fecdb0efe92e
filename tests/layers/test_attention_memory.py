"""What the memory benchmark counts: bytes of one product by hand, and how the peak of each kind of attention grows."""

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location("attention_memory", Path(__file__).parents[2] / "benchmarks" / "attention_memory.py")
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)


def test_bytes_are_those_that_live_at_once():
    n, d = 64, 16
    whole = 4 * n * d
    counted = bench.peak(lambda q, k, v: q + k + v, n, width=d)
    assert 2 * whole <= counted <= 5 * whole                 # two sums while going forth; gradients are shared or added on the way back
    scores = bench.peak(lambda q, k, v: (q @ k.mT).exp() @ v, n, width=d)
    assert 2 * 4 * n * n <= scores <= 4 * 4 * n * n + 8 * whole


@pytest.mark.parametrize("name", bench.kinds(32))
def test_how_the_peak_grows(name):
    f = bench.kinds(32)[name]
    found = {n: bench.peak(f, n, width=16) for n in (1024, 2048)}
    if name.startswith("fused"):
        assert found[2048] < 3 * found[1024]                 # the kernel chooses its own blocks
    else:
        assert bench.power(found) == pytest.approx(2.0 if name == "explicit" else 1.0, abs=0.1)
    assert name == "explicit" or found[2048] < 4 * 2048 * 2048


def test_a_table_and_a_plot():
    found = {"explicit": {1024: 4 * 2**20, 2048: 16 * 2**20}, "tiled": {1024: 2**20, 2048: 2 * 2**20}}
    assert "| explicit | 4.0 | 16.0 | 2.0 |" in bench.table(found, [1024, 2048]) and bench.power({8: 1}) is None
    assert bench.plot(found).count("<path") == 2
