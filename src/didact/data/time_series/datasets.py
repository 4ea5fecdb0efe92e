"""Time series known by name."""

from io import StringIO

import torch

from didact.data.core import Data
from didact.data.datasets.download import RemoteFile, read_files, register_dataset
from didact.data.time_series.windows import build_series

_HOME_URL = "https://raw.githubusercontent.com/jbrownlee/Datasets/master"
_MELBOURNE_FILE = RemoteFile(
    "melbourne-daily-min-temperatures.csv", "8b9de63ed6789492bf497625e7f9beb96a63d367b4b0a21754006f749fa5e5da",
    f"{_HOME_URL}/daily-min-temperatures.csv",
)


@register_dataset(
    kind="series",
    task="regression",
    license="no license stated; Australian Bureau of Meteorology",
    files=(_MELBOURNE_FILE,),
)
def temperatures(seed: int = 0) -> Data:
    """Minimum temperature of 3,650 days in Melbourne, 1981 to 1990: thirty days, and the next (Gaba Ex 5.3)."""
    import pandas as pd

    (raw,) = read_files("temperatures", (_MELBOURNE_FILE,))
    return build_series("temperatures", pd.read_csv(StringIO(raw.decode()))["Temp"].tolist(), "minimum")


@register_dataset(kind="series", task="regression", license="made by didact")
def waves(seed: int = 0) -> Data:
    """2,000 days of a synthetic season with noise: y = 10 sin(2πt/365) + 3 sin(2πt/29) + e."""
    t = torch.arange(2000)
    noise = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    y = 10 * torch.sin(2 * torch.pi * t / 365) + 3 * torch.sin(2 * torch.pi * t / 29) + noise
    return build_series("waves", y.tolist(), "value")
