"""What many tests share: small data made on the spot, and runs that leave nothing behind."""

from pathlib import Path

import pytest
import torch

import didact.recipes  # noqa: F401 (registers the catalogue)

torch.set_num_threads(1)  # small networks run faster on one, and tests share two cores


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
