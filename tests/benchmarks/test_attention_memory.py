"""What the memory benchmark counts: bytes of one product by hand, and how the peak of each kind of attention grows."""

import importlib.util
from pathlib import Path

import pytest

spec = importlib.util.spec_from_file_location(
    "attention_memory", Path(__file__).parents[2] / "benchmarks" / "attention_memory.py"
)
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)


def test_peak_counts_the_bytes_that_live_at_once():
    n, d = 64, 16
    matrix_bytes = 4 * n * d
    peak_bytes = bench.measure_peak_memory(lambda q, k, v: q + k + v, n, head_dim=d)
    # two sums while going forth; gradients are shared or added on the way back
    assert 2 * matrix_bytes <= peak_bytes <= 5 * matrix_bytes
    attention_bytes = bench.measure_peak_memory(lambda q, k, v: (q @ k.mT).exp() @ v, n, head_dim=d)
    assert 2 * 4 * n * n <= attention_bytes <= 4 * 4 * n * n + 8 * matrix_bytes


@pytest.mark.parametrize("name", bench.attention_functions(32))
def test_peak_memory_grows_with_the_expected_power(name):
    f = bench.attention_functions(32)[name]
    peaks = {n: bench.measure_peak_memory(f, n, head_dim=16) for n in (1024, 2048)}
    if name.startswith("fused"):
        assert peaks[2048] < 3 * peaks[1024]                 # the kernel chooses its own blocks
    else:
        assert bench.growth_exponent(peaks) == pytest.approx(2.0 if name == "explicit" else 1.0, abs=0.1)
    assert name == "explicit" or peaks[2048] < 4 * 2048 * 2048


def test_attention_memory_writes_a_table_and_a_plot():
    peaks = {"explicit": {1024: 4 * 2**20, 2048: 16 * 2**20}, "tiled": {1024: 2**20, 2048: 2 * 2**20}}
    assert "| explicit | 4.0 | 16.0 | 2.0 |" in bench.format_table(peaks, [1024, 2048])
    assert bench.growth_exponent({8: 1}) is None
    assert bench.plot_sizes(peaks).count("<path") == 2
