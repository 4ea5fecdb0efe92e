"""Which of the real data sets lie where this machine keeps them."""

import os
from pathlib import Path


def has_public_data(name: str) -> bool:
    return (Path(os.environ.get("DIDACT_DATA", "nowhere")) / name).is_dir()
