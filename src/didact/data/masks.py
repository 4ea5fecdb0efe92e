"""Images with masks that give each pixel a class: a folder of one's own, a made set, and the pedestrians of Penn and Fudan.

One's own folder holds images/ and masks/ with files of equal names (street.jpg, street.png). Folders train, val and test inside both,
or around both, are the split. A mask is grey or has a palette: its values are the classes. With classes.txt beside them, one name a
line, value k is the name of line k, counted from 0. As in VOC, 255 beside such classes 0, 1, 2 … is no class: those pixels do not count.
"""

import io
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from didact.data.assemble import assemble, divide
from didact.data.core import VOID, Batch, Data
from didact.data.fetch import File, check, locate, source
from didact.data.folder import (
    PARTS,
    Found,
    ImageEncoder,
    below,
    channels_of,
    decoded,
    divided,
    images,
    in_size,
    measure,
    of_files,
    split_notes,
    subfolders,
)
from didact.data.health import listed
from didact.data.image_files import dimensions, opened
from didact.data.readers import content, inside, unzipped
from didact.data.stream import Streamed, resident_limit
from didact.errors import UsageError

LARGEST = 128       # side to which images are brought when none is asked for
MULTIPLE = 16       # of which that side is one: networks for masks halve it a few times
MANY = 64           # values of masks without classes.txt, above which they are no classes but shades
BLURRED = 2         # values of a mask in JPEG, above which some come from its rounding, not from who drew it
SIDE = 192          # of the pedestrians
# the home page offers these photographs as 54 MB of PNG; 9 MB of JPEG are kept here, beside the same masks
HOME = "https://www.cis.upenn.edu/~jshi/ped_html/PennFudanPed.zip"
PENNFUDAN = (
    File("pennfudan_jpeg90.zip", "36840989652349ee80ee7e32542f48da95d999eaafd091692c3ac9e6594f6936", HOME),
    File("pennfudan_masks.zip", "c7eb73a53b2a7bbeae10b69f0e265fb63b8de96e63f067a740dbf1d8ffeede33", HOME),
)


@source(kind="masks", task="segmentation", licence="no licence stated, research use; Wang, Shi, Song and Shen 2007", files=PENNFUDAN)
def pennfudan(seed: int = 0) -> Data:
    """170 street photographs of 192 x 192 pixels and where their pedestrians are.

    The test split is the last fifth of each place's pictures (Fudan 60-74, Penn 78-96): neighbours show the same street, and a
    random split would test on what was trained on.
    """
    photographs, shapes = pedestrians()
    names = sorted(photographs)
    encoder = ImageEncoder((3, SIDE, SIDE))
    x = torch.stack([encoder.open(io.BytesIO(photographs[name])) for name in names])  # type: ignore[arg-type]
    y = torch.stack([small(open_mask(io.BytesIO(shapes[name])), SIDE) > 0 for name in names]).to(torch.uint8)
    test = [i for i, name in enumerate(names) if int(name[-5:]) >= (60 if name.startswith("Fudan") else 78)]
    return assemble(
        "pennfudan", "masks", {"x": x, "y": y}, task="segmentation", labels=("street", "pedestrian"), target="mask",
        encoder=encoder, test=torch.tensor(test), fractions=(0.12, 0.0), seed=seed,
    )


def pedestrians() -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Photographs and masks by name, from the two small files or from the home page's own one."""
    found: dict[str, bytes] = {}
    for file in PENNFUDAN:
        path = locate("pennfudan", file)
        if path.name != file.offered:     # of the home page's file we know no sum: its number of pictures is looked at instead
            check("pennfudan", file, path, content(path))
        found |= unzipped(path, (".png", ".jpg"))
    masks = {name.removesuffix("_mask.png"): raw for name, raw in found.items() if name.endswith("_mask.png")}
    photographs = {name[:-4]: raw for name, raw in found.items() if name[:-4] in masks}
    if len(masks) != 170 or len(photographs) != 170:
        raise UsageError(f"pennfudan is 170 photographs with masks, got {len(photographs)}: a file is damaged; replace it")
    return photographs, masks


def open_mask(file: Any) -> Tensor:
    """(H, W) class numbers as they are stored: palette indices, not colours."""
    with opened(file) as mask:
        if mask.mode not in ("1", "L", "P", "I", "I;16"):
            what = "is in colour" if mask.mode not in ("LA", "La", "F") else "has no whole numbers in one channel"
            raise UsageError(f"the mask {file} {what} ({mask.mode}): expected grey or a palette, whose values are the classes; save it so")
        values = np.asarray(mask).astype(np.int64)
        if mask.format in ("JPEG", "MPO") or mask.info.get("compression") == "jpeg":
            found = np.unique(values)
            if len(found) > BLURRED:
                raise UsageError(f"the mask {file} is a JPEG and holds {len(found)} values: JPEG blurs class numbers; save masks as PNG")
        return torch.from_numpy(values)


def small(mask: Tensor, side: int) -> Tensor:
    """Resized by the nearest pixel: between class 1 and class 3 there is no class 2."""
    height, width = mask.shape
    rows, columns = (((torch.arange(side) + 0.5) * n / side).long() for n in (height, width))
    return mask[rows][:, columns]


def is_masks(root: Path) -> bool:
    """Whether a folder holds images with masks, rather than classes of images."""
    return any((top / "images").is_dir() and (top / "masks").is_dir() for top in [root, *split_folders(root, "train")])


def split_folders(root: Path, *parts: str) -> list[Path]:
    """The folders inside that are named as a split is, or as one of these."""
    return [folder for folder in subfolders(root) if PARTS.get(folder.name.lower(), "") in (parts or PARTS.values())]


def load(
    root: Path, *, size: int | None = None, seed: int = 0, indices: Mapping[str, Tensor] | None = None, before: Data | None = None
) -> Data:
    """A folder of images with masks as Data: in memory where it fits, else read while learning. `before`: what a run kept of them."""
    if size is not None and size < 1:
        raise UsageError(f"--size expects a side of at least 1 pixel, got {size}")
    files, masks, parts, strays = pairs(root)
    sizes, modes = measure(files)
    most = min(LARGEST, max(sizes.most_common(1)[0][0]))
    side = size or -(-most // MULTIPLE) * MULTIPLE
    y, labels, told = classes(root, files, masks, side)
    split = indices or divided(Found(tuple(files), None, tuple(parts), labels, 0), seed)
    indices = divide(root.name, len(files), None, task="segmentation", indices=split, seed=seed)
    encoder, deep = ImageEncoder((channels_of(modes), side, side)).spanning(files, modes, indices["train"], before)
    notes = [f"{len(files):,} images with masks of {len(labels)} classes: {listed(labels)}", *told, in_size(sizes, encoder), *deep]
    notes += split_notes(parts, strays)
    if bool((y == VOID).any()):
        notes.append(f"{100 * float((y == VOID).double().mean()):.2g} % of the pixels are {VOID}, of no class: they do not count")
    if len(files) * encoder.shape[0] * side * side > resident_limit():
        columns: Batch | Streamed = Streamed(tuple(files), encoder.open, {"y": y}, encoder.decoders, min(8, os.cpu_count() or 1))
        notes.append("the images are read while learning; their masks fit")
    else:
        columns = {"x": decoded(files, encoder), "y": y}
    return assemble(
        root.resolve().name, "masks", columns, task="segmentation", labels=labels, target="mask", encoder=encoder,
        indices=indices, seed=seed, notes=notes, whence=below(root, files), fingerprint=of_files(files, encoder, y),
    )


def pairs(root: Path) -> tuple[list[str], list[str], list[str], int]:
    """Image and mask files of equal names, whatever their endings; the split of each, if folders name it; how many lie in none of those."""
    tops = [root] if (root / "images").is_dir() else split_folders(root)
    found = [{name: file for top in tops for name, file in lying(root, top, half).items()} for half in ("images", "masks")]
    for one, other, (a, b) in ((found[0], found[1], ("image", "masks")), (found[1], found[0], ("mask", "images"))):
        alone = sorted(one.keys() - other.keys())
        if alone:
            raise UsageError(f"{len(alone)} {a}s of {root} have no fellow of that name in {b}/: {listed(alone)}; add or delete")
    names = sorted(found[0])
    if not names:
        raise UsageError(f"{tops[0]}/images holds no image: expected images/<name>.jpg with masks/<name>.png")
    part = {name: PARTS.get(name.split(os.sep)[0].lower(), "") if os.sep in name else "" for name in names}
    if "train" not in part.values():
        part = dict.fromkeys(names, "")                             # then val or test is but the name of a folder
    kept = [name for name in names if part[name]] or names
    return [found[0][name] for name in kept], [found[1][name] for name in kept], [part[name] for name in kept], len(names) - len(kept)


def lying(root: Path, top: Path, half: str) -> dict[str, str]:
    """The files of top/images or top/masks by name, the split first and no ending: train/street of both layouts."""
    return {
        os.path.normpath(os.path.join(os.path.relpath(top, root), os.path.splitext(os.path.relpath(file, top / half))[0])): file
        for file in images(top / half, root)[0]
    }


def classes(root: Path, files: Sequence[str], masks: Sequence[str], side: int) -> tuple[Tensor, tuple[str, ...], list[str]]:
    """(N, side, side) bytes, and the classes' names: those of classes.txt, or else the values that the masks hold, which is said."""
    listing = root / "classes.txt"
    inside(str(listing), root)
    try:
        words = listing.read_text(encoding="utf-8").rstrip().splitlines() if listing.is_file() else []
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{listing} cannot be read ({error}): expected a class name on each line, in UTF-8") from None
    named = tuple(word.strip() for word in words)
    if "" in named:                                         # to pass it over would give all values behind it another's name
        at = named.index("")
        raise UsageError(f"line {at + 1} of {listing} is empty, but names the value {at} of the masks; write its name, or delete the line")
    if len(named) > VOID:
        raise UsageError(f"{listing} names {len(named)} classes: at most {VOID} are kept in a mask's bytes")
    values: set[int] = set(range(len(named)))
    stored = torch.empty(len(files), side, side, dtype=torch.int32)
    showing: Counter[int] = Counter()                       # images on which a value occurs

    def read(pair: tuple[str, str]) -> tuple[Tensor, list[int]]:
        mask = fitting(*pair)
        return small(mask, side), mask.unique().tolist()   # decoding leaves Python's lock, so threads help

    with ThreadPoolExecutor() as pool:
        for i, (mask, there) in enumerate(pool.map(read, zip(files, masks, strict=True))):
            unknown = [v for v in there if v not in values and not (named and v == VOID)]
            if named and unknown:
                raise UsageError(f"the mask {masks[i]} holds class {unknown[0]}, but {listing} names {len(named)}: 0 to {len(named) - 1}")
            values.update(unknown)
            showing.update(there)
            stored[i] = mask
    if len(values) > MANY and not named:
        raise UsageError(f"the masks of {root} hold {len(values)} values: shades? if they are classes, name them in {listing}")
    if len(values) < 2:
        raise UsageError(f"the masks of {root} hold only the value {min(values)}: at least two classes can be told apart")
    others = values - {VOID}
    if named or (len(others) > 1 and others == set(range(len(others)))):    # 255 beside 0 alone, or beside shades, is a class
        values = others
    known = torch.tensor(sorted(values))
    labels = named or (("background", "foreground") if values in ({0, 255}, {0, 1}) else tuple(map(str, known.tolist())))
    rarest = sorted((showing[value], label) for value, label in zip(known.tolist(), labels, strict=True))
    each = listed([f"{label} on {n:,}" for n, label in rarest])
    notes = [] if named else [f"no classes.txt: the values of masks are the classes; images that show each, the rarest first: {each}"]
    return torch.where(torch.isin(stored, known), torch.searchsorted(known, stored), VOID).to(torch.uint8), labels, notes


def fitting(file: str, path: str) -> Tensor:
    """A mask that covers its image, pixel for pixel."""
    mask = open_mask(path)
    (width, height), _ = dimensions(file)
    if mask.shape != (height, width):
        have = f"{mask.shape[1]}×{mask.shape[0]}"
        raise UsageError(f"the mask {path} is {have} pixels, but its image {file} is {width}×{height}; make them equal")
    return mask
