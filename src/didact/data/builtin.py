"""Sets that come inside scikit-learn: no download."""

from typing import Any

import torch
from torch import Tensor

from didact.data.assemble import assemble
from didact.data.core import Data
from didact.data.fetch import SOURCES as SOURCES
from didact.data.fetch import source
from didact.data.folder import ImageEncoder
from didact.data.table import TableEncoder


@source(kind="images", task="multiclass", licence="CC BY 4.0 (UCI); Alpaydin and Kaynak 1998")
def digits(seed: int = 0) -> Data:
    """1,797 handwritten digits of 8 x 8 pixels."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    levels = torch.from_numpy(bunch.images)[:, None]      # (N, 1, 8, 8), 0 … 16
    return assemble(
        "digits", "images",
        {"x": (levels * 255 / 16).round().to(torch.uint8), "y": torch.from_numpy(bunch.target).long()},
        task="multiclass", labels=[str(k) for k in range(10)], target="digit",
        encoder=ImageEncoder(shape=(1, 8, 8)), seed=seed,
    )


@source(kind="table", task="multiclass", licence="CC BY 4.0 (UCI); Fisher 1936")
def iris(seed: int = 0) -> Data:
    """150 irises of three species, four measures each."""
    from sklearn.datasets import load_iris

    return table("iris", load_iris(), "species", seed)


@source(kind="table", task="multiclass", licence="CC BY 4.0 (UCI); Aeberhard and Forina 1991")
def wine(seed: int = 0) -> Data:
    """178 Italian wines of three growers, 13 chemical measures."""
    from sklearn.datasets import load_wine

    return table("wine", load_wine(), "grower", seed)


@source(kind="table", task="binary", licence="CC BY 4.0 (UCI); Wolberg, Mangasarian, Street and Street 1995")
def breast_cancer(seed: int = 0) -> Data:
    """569 breast tumours, malignant or benign, 30 measures of their cell nuclei."""
    from sklearn.datasets import load_breast_cancer

    return table("breast_cancer", load_breast_cancer(), "tumour", seed)


@source(kind="table", task="regression", licence="no licence stated; Efron, Hastie, Johnstone and Tibshirani 2004")
def diabetes(seed: int = 0) -> Data:
    """442 patients: ten measures and how far their diabetes went in a year."""
    from sklearn.datasets import load_diabetes

    # scikit-learn scales by all rows; `assemble` does by the training rows alone
    return table("diabetes", load_diabetes(scaled=False), "progression", seed)


def table(name: str, bunch: Any, target: str, seed: int) -> Data:
    """One of scikit-learn's tables of numbers, its classes in scikit-learn's order."""
    labels = [str(label) for label in bunch.get("target_names", ())]
    names = [str(feature) for feature in bunch.feature_names]
    y: Tensor = torch.from_numpy(bunch.target)
    return assemble(
        name, "table",
        {"x": torch.from_numpy(bunch.data).float(), "y": y.long() if labels else y.float()},
        task={0: "regression", 2: "binary"}.get(len(labels), "multiclass"),
        labels=labels, names=names, target=target, encoder=TableEncoder.numeric(names, target), seed=seed,
    )
