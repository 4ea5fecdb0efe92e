"""Files are read by several threads: results in order, few at once, and nothing more after an error."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from didact.data.images import image_folder
from didact.data.images.image_folder import map_ahead

FILES = [f"{i}" for i in range(200)]


def test_results_are_in_order_and_few_are_under_way(monkeypatch):
    monkeypatch.setattr(image_folder, "_FILES_AT_ONCE", 8)
    started: list[int] = []

    def read(file: str) -> int:
        started.append(int(file))
        time.sleep(0.002 * (int(file) % 5 == 0))          # some are slower than those behind them
        return int(file)

    with ThreadPoolExecutor(4) as pool:
        for i, result in enumerate(map_ahead(pool, read, FILES)):
            assert result == i and max(started) <= i + 8
    assert sorted(started) == list(range(200))


def test_an_error_ends_the_reading(monkeypatch):
    monkeypatch.setattr(image_folder, "_FILES_AT_ONCE", 8)
    lock, started = threading.Lock(), []

    def read(file: str) -> int:
        with lock:
            started.append(file)
        if file == "20":
            raise ValueError("damaged")
        time.sleep(0.001)
        return int(file)

    with pytest.raises(ValueError, match="damaged"), ThreadPoolExecutor(4) as pool:
        list(map_ahead(pool, read, FILES))
    assert len(started) < 40
