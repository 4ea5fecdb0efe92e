"""Segmentation masks and restored images: each test example as a strip of pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from didact.charts.html import Html, format_number, tag
from didact.data.core import IGNORE_LABEL
from didact.data.images.render import IGNORE_COLOR, colorize_mask, make_palette
from didact.report.examples import make_description_entry, make_image_tag

MASKS_LEAD = (
    "The test images with the highest and the lowest loss: image, true mask and predicted mask."
)
RESTORED_LEAD = (
    "The test images with the highest and the lowest loss: damaged input, restored output, and the original."
)


def _make_picture_strip(pictures: Mapping[str, Tensor], example_name: str) -> Html:
    """Pictures side by side with their names."""
    spans = [
        tag("span", make_image_tag(x, f"{example_name}: {name}"), tag("small", name)) for name, x in pictures.items()
    ]
    return tag("div", spans, class_="strip")


def _make_legend(class_names: Sequence[str], *, with_ignored: bool = False) -> Html:
    """The color of each class, and of ignored pixels."""
    palette = [*make_palette(len(class_names)).tolist(), *([IGNORE_COLOR] if with_ignored else [])]
    styles = [f"--c:rgb({', '.join(str(round(255 * c)) for c in color)})" for color in palette]
    entries = [*class_names, *(["no class, not judged"] if with_ignored else [])]
    return tag(
        "ul", [tag("li", entry, style=style) for entry, style in zip(entries, styles, strict=True)], class_="key"
    )


def make_mask_groups(
    examples: Mapping[str, Tensor],
    names: Mapping[str, Sequence[str]],
    outputs: Mapping[str, Tensor],
    data: Mapping[str, Any],
) -> list[Html]:
    """Image, true mask and predicted mask, for runs of segmentation."""
    class_names = list(data.get("class_names", ()))

    def make_pictures(group: str, i: int) -> dict[str, Tensor]:
        true, predicted = (
            colorize_mask(examples[f"{group}_{part}"][i], len(class_names)) for part in ("true_mask", "mask")
        )
        return {"image": examples[f"{group}_x"][i], "true": true, "predicted": predicted}

    groups = _make_groups(examples, names, outputs, ("mask", "true_mask"), make_pictures)
    if not groups:
        return []
    return [
        _make_legend(
            class_names,
            with_ignored=any(
                bool((examples[f"{group}_true_mask"] == IGNORE_LABEL).any()) for group in ("worst", "best")
            ),
        ),
        *groups,
    ]


def make_restored_groups(
    examples: Mapping[str, Tensor], names: Mapping[str, Sequence[str]], outputs: Mapping[str, Tensor]
) -> list[Html]:
    """Damaged, restored and original image, for runs of restoration."""
    def make_pictures(group: str, i: int) -> dict[str, Tensor]:
        return {
            "damaged": examples[f"{group}_damaged"][i],
            "restored": examples[f"{group}_restored"][i],
            "original": examples[f"{group}_x"][i],
        }

    return _make_groups(examples, names, outputs, ("damaged", "restored"), make_pictures)


def _make_groups(
    examples: Mapping[str, Tensor],
    names: Mapping[str, Sequence[str]],
    outputs: Mapping[str, Tensor],
    required: Sequence[str],
    make_pictures: Any,
) -> list[Html]:
    """The highest and the lowest losses, a card for each; none for runs of other kinds."""
    if not {f"{group}_{part}" for group in ("worst", "best") for part in ("x", *required)} <= examples.keys():
        return []
    groups = []
    for group, title in (("worst", "Highest loss"), ("best", "Lowest loss")):
        cards = []
        for i, (example_name, row) in enumerate(zip(names[group], examples[group].tolist(), strict=True)):
            entries = [make_description_entry(name, value) for name, value in _describe_metrics(outputs, row).items()]
            cards.append(
                tag(
                    "li",
                    _make_picture_strip(make_pictures(group, i), example_name),
                    tag("dl", entries),
                    tag("small", example_name),
                )
            )
        groups.append(Html(tag("h3", title) + tag("ul", cards, class_="examples strips")))
    return groups


def _describe_metrics(outputs: Mapping[str, Tensor], row: int) -> dict[str, str]:
    """The example's own metrics."""
    texts = {"loss": format_number(float(outputs["loss"][row]), 3)}
    if "confusion" in outputs:
        counts = outputs["confusion"][row]
        texts["correct"] = f"{100 * float(counts.diagonal().sum() / counts.sum()):.1f} % of pixels"
    if "psnr" in outputs:
        texts["PSNR"] = f"{float(outputs['psnr_damaged'][row]):.1f} → {float(outputs['psnr'][row]):.1f} dB"
    return texts
