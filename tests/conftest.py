"""What many tests share: small data made on the spot, and runs that leave nothing behind."""

import os
from collections.abc import Iterator
from pathlib import Path

# small networks run faster on one, and tests share two cores; NumPy asks when it is imported, and so do the processes
# that tests start
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import pytest
import torch

import didact.recipes  # noqa: F401 (registers the catalogue)

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What must stay on one worker goes first, so that no other waits for it at the end."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def seed() -> None:
    """torch's generator starts anew: what a test draws does not depend on the tests before it in the same worker."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def matmul_precision() -> Iterator[None]:
    """A training on a GPU uses TF32 for matrix products; the next test starts with the default."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)
