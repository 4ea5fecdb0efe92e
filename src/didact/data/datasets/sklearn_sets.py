"""Datasets that come with scikit-learn: no download."""

from typing import Any

import torch
from torch import Tensor

from didact.data.build import Examples, build_data
from didact.data.core import Data
from didact.data.datasets.download import register_dataset
from didact.data.images.image_folder import ImageEncoder
from didact.data.tables.table import TableEncoder


@register_dataset(kind="images", task="multiclass", license="CC BY 4.0 (UCI); Alpaydin and Kaynak 1998")
def digits(seed: int = 0) -> Data:
    """1,797 handwritten digits of 8 x 8 pixels."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    levels = torch.from_numpy(bunch.images)[:, None]      # (N, 1, 8, 8), 0 … 16
    return build_data(
        Examples(
            "digits",
            "images",
            {"x": (levels * 255 / 16).round().to(torch.uint8), "y": torch.from_numpy(bunch.target).long()},
            task="multiclass",
            class_names=[str(k) for k in range(10)],
            target="digit",
            encoder=ImageEncoder(shape=(1, 8, 8)),
        ),
        seed=seed,
    )


@register_dataset(kind="table", task="multiclass", license="CC BY 4.0 (UCI); Fisher 1936")
def iris(seed: int = 0) -> Data:
    """150 irises of three species, four measures each."""
    from sklearn.datasets import load_iris

    return _build_sklearn_table("iris", load_iris(), "species", seed)


@register_dataset(kind="table", task="multiclass", license="CC BY 4.0 (UCI); Aeberhard and Forina 1991")
def wine(seed: int = 0) -> Data:
    """178 Italian wines of three growers, 13 chemical measures."""
    from sklearn.datasets import load_wine

    return _build_sklearn_table("wine", load_wine(), "grower", seed)


@register_dataset(kind="table", task="binary", license="CC BY 4.0 (UCI); Wolberg, Mangasarian, Street and Street 1995")
def breast_cancer(seed: int = 0) -> Data:
    """569 breast tumors, malignant or benign, 30 measures of their cell nuclei."""
    from sklearn.datasets import load_breast_cancer

    return _build_sklearn_table("breast_cancer", load_breast_cancer(), "tumour", seed)


@register_dataset(
    kind="table", task="regression", license="no license stated; Efron, Hastie, Johnstone and Tibshirani 2004"
)
def diabetes(seed: int = 0) -> Data:
    """442 patients: ten measures and the progression of their diabetes in a year."""
    from sklearn.datasets import load_diabetes

    # scikit-learn scales by all rows; `build_data` does by the training rows alone
    return _build_sklearn_table("diabetes", load_diabetes(scaled=False), "progression", seed)


def _build_sklearn_table(name: str, bunch: Any, target: str, seed: int) -> Data:
    """One of scikit-learn's tables of numbers, its classes in scikit-learn's order."""
    labels = [str(label) for label in bunch.get("target_names", ())]
    names = [str(feature) for feature in bunch.feature_names]
    y: Tensor = torch.from_numpy(bunch.target)
    return build_data(
        Examples(
            name,
            "table",
            {"x": torch.from_numpy(bunch.data).float(), "y": y.long() if labels else y.float()},
            task={0: "regression", 2: "binary"}.get(len(labels), "multiclass"),
            class_names=labels,
            feature_names=names,
            target=target,
            encoder=TableEncoder.numeric(names, target),
        ),
        seed=seed,
    )
