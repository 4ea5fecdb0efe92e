"""One-line formulas as HTML: x_{t−1} and 2^n as sub- and superscripts, 1e-3 as a power of ten, names as code."""

import re

from didact.charts.html import tag

_FORMULA_PATTERN = re.compile(
    r"""
    (?P<code> print\(.*\) | \bdidact\ reproduce\ [\w.]+(?:\ --\w+\ \d+)*
            | \b(?:nn|torch|F|fc)(?:\.\w+)+ (?:CALL)? (?:\.\w+)*
            | \b[a-z][\w.]*\(\)
            | \b[A-Za-z]\w+ \([^()]*[a-z_]{3,}=[^()]*\)                                    # StepLR(step_size=100)
            | (?<![\w.]) (?:[a-z][a-z0-9]+_[a-z]\w+ | [a-z]_(?:hat\b|[a-z]{6,})) (?:CALL|=\w[\w.]*)?
              )                                                                           # max_lr, n_critic, y_hat
    | (?<=\S)_  (?P<sub> BRACES | ∞ | [<≤]?[A-Za-z0-9α-ωΑ-Ωℓ]{1,5}(?![A-Za-z0-9_]) )
    | (?<=\S)\^ (?P<sup> BRACES | \([^()]*\) | [-−]?\|[^|]*\| | ⌊[^⌋]*⌋ | [†*] | [-−]?\w+ )
    | (?<!\w)(?<!\d\.) (?P<digits>\d+(?:\.\d+)?) e (?P<ten>[-−+]?\d{1,3}) (?!\w)
    | (?<![\w)\]]) (?P<minus>-) (?=[\d.∞])
    """.replace("CALL", r"\((?:[^()]|\([^()]*\))*\)").replace("BRACES", r"\{(?:[^{}]|\{[^{}]*\})*\}"),
    re.VERBOSE,
)
_LAYER_SUPERSCRIPT = re.compile(r"\(\w(?:[+−]1)?\)")  # h^(l−1) is not a power: its brackets stay


def typeset(text: str) -> list[object]:
    """A text as a list of strings and HTML tags."""
    parts: list[object] = []
    end = 0
    for match in _FORMULA_PATTERN.finditer(text):
        parts += [text[end : match.start()], _typeset_match(match)]
        end = match.end()
    return [*parts, text[end:]]


def _typeset_match(matched: re.Match[str]) -> object:
    match matched.lastgroup:
        case "code":
            return tag("code", matched[0])
        case "sub" | "sup" as level:
            inner = matched[level]
            is_bracketed = inner[0] in "{(" and not _LAYER_SUPERSCRIPT.fullmatch(inner)
            return tag(level, typeset(inner[1:-1] if is_bracketed else inner))
        case "ten":
            digits, power = matched["digits"], int(matched["ten"].replace("−", "-"))
            times = "" if digits == "1" else f"{digits}\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}"
            return [f"{times}10", tag("sup", str(power).replace("-", "−"))]
    return "−"
