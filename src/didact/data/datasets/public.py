"""Public datasets, loaded from the files that their home pages offer, each checked by its sha256."""

import io
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from didact.data.build import Examples, build_data
from didact.data.core import Batch, Data
from didact.data.datasets.archives import (
    REPLACE_ADVICE,
    is_archive,
    parse_cifar,
    parse_idx,
    read_decompressed,
    read_tar_members,
)
from didact.data.datasets.download import (
    RemoteFile,
    compute_sha256,
    ensure_file,
    load_cached,
    read_files,
    register_dataset,
    verify_content,
)
from didact.data.images.image_folder import ImageEncoder
from didact.data.tables.table import TableEncoder
from didact.data.text import classification
from didact.data.text.classification import BagEncoder
from didact.errors import UsageError

IDX_FILE_NAMES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_MNIST_SHA256 = (
    "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
)
_FASHION_SHA256 = (
    "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
)
_CIFAR_SHA256 = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}

_MNIST_FILES, _FASHION_FILES = (
    tuple(RemoteFile(name, total, f"{home}/{name}.gz") for name, total in zip(IDX_FILE_NAMES, sums, strict=True))
    for home, sums in (
        ("https://ossci-datasets.s3.amazonaws.com/mnist", _MNIST_SHA256),
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", _FASHION_SHA256),
    )
)
_CIFAR_FILES = tuple(
    RemoteFile(
        f"cifar-10-batches-bin/{name}", total, "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
        archive_sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    )
    for name, total in _CIFAR_SHA256.items()
)
_ADULT_FILES = tuple(
    RemoteFile(name, total, f"https://archive.ics.uci.edu/ml/machine-learning-databases/adult/{name}")
    for name, total in (
        ("adult.data", "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
        ("adult.test", "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
    )
)
# a line for each review, "split TAB pos|neg TAB number TAB stars TAB text": a small file of the archive's 50,000
IMDB_FILE = RemoteFile(
    "imdb_50k.tsv", "bce7e63c3fc58bfd022079372ef16c1abda3fb2501b3a34621fa69912ca8ae03",
    "https://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
    archive_sha256="c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe",
)

_FASHION_CLASSES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
_CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship",
    "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income",
)


@register_dataset(
    kind="images", task="multiclass", license="CC BY-SA 3.0; LeCun, Cortes and Burges 1998", files=_MNIST_FILES
)
def mnist(seed: int = 0) -> Data:
    """70,000 handwritten digits of 28 x 28 gray pixels."""
    return load_idx_images("mnist", _MNIST_FILES, [str(k) for k in range(10)], "digit", seed)


@register_dataset(kind="images", task="multiclass", license="MIT; Xiao, Rasul and Vollgraf 2017", files=_FASHION_FILES)
def fashion_mnist(seed: int = 0) -> Data:
    """70,000 photographs of clothes of 28 x 28 gray pixels."""
    return load_idx_images("fashion_mnist", _FASHION_FILES, _FASHION_CLASSES, "article", seed)


@register_dataset(kind="images", task="multiclass", license="no license stated; Krizhevsky 2009", files=_CIFAR_FILES)
def cifar10(seed: int = 0) -> Data:
    """60,000 photographs of ten kinds of things, 32 x 32 pixels in color."""
    images, labels = zip(*map(parse_cifar, read_files("cifar10", _CIFAR_FILES)), strict=True)
    return _build_image_data("cifar10", torch.cat(images), torch.cat(labels), _CIFAR_CLASSES, "thing", 10_000, seed)


@register_dataset(kind="table", task="binary", license="CC BY 4.0 (UCI); Becker and Kohavi 1996", files=_ADULT_FILES)
def adult(seed: int = 0) -> Data:
    """48,842 people of the 1994 US census: does one earn more than 50,000 dollars?"""
    import pandas

    # adult.test opens with a comment, and ends each label with a full stop
    parts = [
        pandas.read_csv(io.BytesIO(raw), names=_ADULT_COLUMNS, na_values="?", skipinitialspace=True, comment="|")
        for raw in read_files("adult", _ADULT_FILES)
    ]
    frame = pandas.concat(parts, ignore_index=True)
    frame["income"] = frame["income"].str.rstrip(".")
    encoder, x = TableEncoder.from_frame(frame, "income", torch.arange(len(parts[0])))
    y = torch.tensor((frame["income"] == ">50K").to_numpy())
    return build_data(
        Examples(
            "adult",
            "table",
            {"x": x, "y": y.long()},
            task="binary",
            class_names=("<=50K", ">50K"),
            feature_names=encoder.feature_names,
            target="income",
            encoder=encoder,
            notes=encoder.notes,
        ),
        test_indices=_make_test_indices(len(parts[1]), len(x)),
        seed=seed,
    )


@register_dataset(kind="text", task="binary", license="no license stated; Maas et al. 2011", files=(IMDB_FILE,))
def imdb(seed: int = 0) -> Data:
    """50,000 film reviews, half of them positive, as bags of their 10,000 most frequent words."""
    path = ensure_file("imdb", IMDB_FILE)
    # other code may split words in another way
    version = Path(classification.__file__).read_text(encoding="utf-8")
    columns = load_cached("imdb", path, version, lambda: _make_bags(read_reviews(path)))
    encoder = BagEncoder(tuple(columns.pop("words").numpy().tobytes().decode().split("\n")))
    return build_data(
        Examples(
            "imdb",
            "text",
            columns,
            task="binary",
            class_names=("negative", "positive"),
            feature_names=encoder.vocab,
            target="sentiment",
            encoder=encoder,
            text_reader=lambda: [text for _, _, text in read_reviews(path)],
            standardize=False,
        ),
        test_indices=_make_test_indices(25_000, len(columns["y"])),
        seed=seed,
    )


def load_idx_images(name: str, files: Sequence[RemoteFile], labels: Sequence[str], target: str, seed: int) -> Data:
    """MNIST's four files, and those of datasets in its format."""
    x, y, x_test, y_test = map(parse_idx, read_files(name, files))
    images = torch.cat([x, x_test])[:, None]   # (N, H, W) -> (N, 1, H, W)
    return _build_image_data(name, images, torch.cat([y, y_test]).long(), labels, target, len(x_test), seed)


def _build_image_data(
    name: str, x: Tensor, y: Tensor, labels: Sequence[str], target: str, num_test: int, seed: int
) -> Data:
    """Bytes (N, C, H, W), of which the last `num_test` are the official test split."""
    channels, height, width = x.shape[1:]
    return build_data(
        Examples(
            name,
            "images",
            {"x": x, "y": y},
            task="multiclass",
            class_names=labels,
            target=target,
            encoder=ImageEncoder(shape=(channels, height, width)),
        ),
        test_indices=_make_test_indices(num_test, len(x)),
        seed=seed,
    )


def _make_test_indices(num_test: int, num_rows: int) -> Tensor:
    """Indices of the official test split: every loader puts it behind the rest."""
    return torch.arange(num_rows - num_test, num_rows)


def _make_bags(rows: Sequence[tuple[str, str, str]]) -> Batch:
    """Reviews as bags of words, and the vocabulary of the training reviews, one word on each line."""
    texts = [text for _, _, text in rows]
    encoder = BagEncoder.fit([text for part, _, text in rows if part == "train"], vocab_size=10_000)
    words = torch.frombuffer(bytearray("\n".join(encoder.vocab).encode()), dtype=torch.uint8)
    y = torch.tensor([int(label == "pos") for _, label, _ in rows])
    return {"x": encoder.encode(texts), "y": y, "words": words}


def read_reviews(path: Path) -> list[tuple[str, str, str]]:
    """(train or test, pos or neg, text) of each film review: training first, in the order of their numbers."""
    if not is_archive(path):
        # not splitlines() and split(): texts hold other line ends and tabs
        lines = verify_content("imdb", IMDB_FILE, path, read_decompressed(path)).decode().split("\n")[:-1]
        return [(part, label, text) for part, label, _, _, text in (line.split("\t", 4) for line in lines)]
    if compute_sha256(path) != IMDB_FILE.archive_sha256:
        raise UsageError(f"{path} is not what {IMDB_FILE.url} offers, but damaged or cut short; {REPLACE_ADVICE}")
    contents = read_tar_members(path, re.compile(r"aclImdb/(train|test)/(pos|neg)/\d+_\d+\.txt").fullmatch)
    order = sorted(contents, key=_review_sort_key)
    return [(name.split("/")[1], name.split("/")[2], contents[name].decode()) for name in order]


def _review_sort_key(name: str) -> tuple[bool, bool, int]:
    """aclImdb/train/pos/12_9.txt: training before test, positive before negative, then by number."""
    _, part, label, file = name.split("/")
    return part == "test", label == "neg", int(file.split("_")[0])
