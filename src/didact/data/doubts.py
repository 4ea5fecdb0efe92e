"""What a model is asked about and never learned: said beside its answers, which are given all the same."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from didact.data.core import Encoder
from didact.data.delimited import parsed
from didact.data.health import listed
from didact.data.table import Category, Number, TableEncoder, texts
from didact.errors import counted

if TYPE_CHECKING:
    from pandas import DataFrame


def doubts(encoder: Encoder | None, inputs: Sequence[str]) -> list[str]:
    """Of rows of a table: cells of numbers that are none, and names that training did not meet."""
    if not isinstance(encoder, TableEncoder):
        return []
    return [said for names, frame in encoder.frames(inputs) for column in encoder.columns for said in unknown(column, names, frame)]


def unknown(column: Number | Category, names: Sequence[str], frame: "DataFrame") -> list[str]:
    """What is said of a column, and of the first row in which it is so."""
    cells = frame[column.name]
    if isinstance(column, Number):
        wrong = (cells.notna() & parsed(cells).isna()).to_numpy()
        said = f"{counted(int(wrong.sum()), 'cell')} not read as a number, taken as missing"
    else:
        words = texts(cells)
        new = [word for word in dict.fromkeys(words[cells.notna()]) if column.number([word]) == [-1]]
        wrong = words.isin(new).to_numpy() & cells.notna().to_numpy()
        said = f"{listed([repr(word) for word in new])}, which training did not meet"
    return [f"column {column.name!r} holds {said}; first in {names[int(wrong.argmax())]}"] if wrong.any() else []
