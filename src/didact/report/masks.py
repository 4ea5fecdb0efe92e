"""Masks and restored images beside what they should be: each test example as a strip of pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from didact.data.core import VOID
from didact.data.pictures import PALE, coloured, colours
from didact.report.examples import entry, picture
from didact.report.markup import Html, number, tag

MASKS = "The test images with the highest and the lowest loss: the image, what each pixel is, and what the model said it is."
RESTORED = "The test images with the highest and the lowest loss: what the network was given, what it made of it, and the image as it was."


def strip(pictures: Mapping[str, Tensor], called: str) -> Html:
    """Pictures side by side, each with its name below."""
    shown = [tag("span", picture(x, f"{called}: {name}"), tag("small", name)) for name, x in pictures.items()]
    return tag("div", shown, class_="strip")


def legend(labels: Sequence[str], *, void: bool = False) -> Html:
    """The colour of each class, and of pixels that have none."""
    palette = [*colours(len(labels)).tolist(), *([PALE] if void else [])]
    tones = [f"--c:rgb({', '.join(str(round(255 * c)) for c in colour)})" for colour in palette]
    names = [*labels, *(["no class, not judged"] if void else [])]
    return tag("ul", [tag("li", name, style=tone) for name, tone in zip(names, tones, strict=True)], class_="key")


def mask_groups(
    kept: Mapping[str, Tensor], names: Mapping[str, Sequence[str]], rows: Mapping[str, Tensor], data: Mapping[str, Any]
) -> list[Html]:
    """Image, true mask and predicted mask, where the run gives each pixel a class."""
    labels = list(data.get("labels", ()))

    def shown(which: str, i: int) -> dict[str, Tensor]:
        true, said = (coloured(kept[f"{which}_{part}"][i], len(labels)) for part in ("true_mask", "mask"))
        return {"image": kept[f"{which}_x"][i], "true": true, "predicted": said}

    found = groups(kept, names, rows, ("mask", "true_mask"), shown)
    if not found:
        return []
    return [legend(labels, void=any(bool((kept[f"{which}_true_mask"] == VOID).any()) for which in ("worst", "best"))), *found]


def restored_groups(kept: Mapping[str, Tensor], names: Mapping[str, Sequence[str]], rows: Mapping[str, Tensor]) -> list[Html]:
    """Damaged, restored and original image, where the run gives images back."""
    def shown(which: str, i: int) -> dict[str, Tensor]:
        return {"damaged": kept[f"{which}_damaged"][i], "restored": kept[f"{which}_restored"][i], "original": kept[f"{which}_x"][i]}

    return groups(kept, names, rows, ("damaged", "restored"), shown)


def groups(
    kept: Mapping[str, Tensor], names: Mapping[str, Sequence[str]], rows: Mapping[str, Tensor], needed: Sequence[str], shown: Any
) -> list[Html]:
    """The worst and the best, a card for each; none where the run kept other things."""
    if not {f"{which}_{part}" for which in ("worst", "best") for part in ("x", *needed)} <= kept.keys():
        return []
    found = []
    for which, title in (("worst", "Most surprising"), ("best", "Least surprising")):
        cards = []
        for i, (called, row) in enumerate(zip(names[which], kept[which].tolist(), strict=True)):
            told = [entry(name, value) for name, value in verdict(rows, row).items()]
            cards.append(tag("li", strip(shown(which, i), called), tag("dl", told), tag("small", called)))
        found.append(Html(tag("h3", title) + tag("ul", cards, class_="examples strips")))
    return found


def verdict(rows: Mapping[str, Tensor], row: int) -> dict[str, str]:
    """The example's own numbers, as the run kept them."""
    told = {"loss": number(float(rows["loss"][row]), 3)}
    if "confusion" in rows:
        counts = rows["confusion"][row]
        told["right"] = f"{100 * float(counts.diagonal().sum() / counts.sum()):.1f} % of pixels"
    if "psnr" in rows:
        told["PSNR"] = f"{float(rows['psnr_damaged'][row]):.1f} → {float(rows['psnr'][row]):.1f} dB"
    return told
