"""Maps of attention: for each head who looks at whom, with the tokens at both axes."""

import math
from collections.abc import Sequence

from torch import Tensor

from didact.explain.colour import HEAT, SIGNED, coloured, scaled
from didact.report import svg
from didact.report.examples import inline
from didact.report.markup import Html, shorten, tag

ACROSS = 4             # maps in a row
SIDE, GAP = 210, 18    # pixels of a map, and between two
NAMED = 20             # tokens of an axis that have room for a name


def attention_maps(title: str, heads: Tensor, rows: Sequence[str], columns: Sequence[str]) -> Html:
    """(heads, T, S), each on its own scale: the T tokens that look beside it, the S that are looked at above it.

    Bright is much; where some are negative, red is above zero and blue below.
    """
    down, across = ([shorten(words, 12) for words in names] for names in (rows, columns))
    left, top = (8 + svg.LETTER * max(map(len, names)) for names in (down, across))
    wide, tall = left + SIDE + GAP, top + SIDE + GAP + 22
    signed = bool((heads < 0).any())                       # of a layer: its heads stand beside each other
    parts: list[Html] = []
    for j, a in enumerate(heads):
        x, y = wide * (j % ACROSS) + left, tall * (j // ACROSS) + top + 22
        parts.append(svg.write_at(x, y - top - 6, f"{title} head {j + 1}", "title"))
        picture = coloured(scaled(a, signed=signed, share=1.0), SIGNED if signed else HEAT)
        parts.append(tag("image", href=inline(picture), x=round(x, 1), y=round(y, 1), width=SIDE, height=SIDE,
                         preserveAspectRatio="none", style="image-rendering:pixelated"))
        parts.append(svg.box(x, y, SIDE, SIDE, "frame"))
        each, step = SIDE / len(down), math.ceil(len(down) / NAMED)
        parts += [svg.write_at(x - 5, y + (i + 0.5) * each + 4, down[i], "tick", "end") for i in range(0, len(down), step)]
        each, step = SIDE / len(across), math.ceil(len(across) / NAMED)
        parts += [svg.write_at(x + (i + 0.5) * each + 4, y - 5, across[i], "tick", turn=-90) for i in range(0, len(across), step)]
    count = len(heads)
    return svg.draw(title, wide * min(ACROSS, count), tall * math.ceil(count / ACROSS), *parts)
