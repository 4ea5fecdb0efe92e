"""How close a translation comes to one that a person wrote: BLEU of a whole corpus, cut into words as WMT's own script cuts them."""

import re
from collections import Counter
from collections.abc import Sequence
from math import exp, log

ORDER = 4   # the longest runs of words that are compared

ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
CUTS = tuple((re.compile(pattern), by) for pattern, by in (
    (r"([!-&(-+/:-@\[-`{-~])", r" \1 "),   # every sign of ASCII but ' , - . stands by itself
    (r"([^0-9])([.,])", r"\1 \2 "),           # full stops and commas do, unless digits are on both sides
    (r"([.,])([^0-9])", r" \1 \2"),
    (r"([0-9])(-)", r"\1 \2 "),               # a dash behind a digit does
))


def bleu(written: Sequence[str], references: Sequence[str]) -> float:
    """100 · min(1, e^(1 − r/c)) · (p_1 p_2 p_3 p_4)^¼ over the whole corpus, r and c words in references and translations.

    p_n is the share of n-grams that the reference has too, each as often as there at most; a p_n of 0 counts as 1 / (2 · n-grams), and
    half as much again at each further one. Papineni et al. 2002. Equal to sacrebleu's default (13a, exp).
    """
    right, total = [0] * ORDER, [0] * ORDER
    c = r = 0
    for ours, theirs in zip(map(words, written), map(words, references), strict=True):
        c, r = c + len(ours), r + len(theirs)
        for n in range(1, ORDER + 1):
            found = runs(ours, n)
            right[n - 1] += (found & runs(theirs, n)).total()
            total[n - 1] += found.total()
    if not any(right) or not all(total):
        return 0.0
    logs, zeros = 0.0, 0
    for hits, n_grams in zip(right, total, strict=True):
        zeros += hits == 0
        logs += log(hits / n_grams if hits else 1 / (2**zeros * n_grams))
    return 100 * exp(min(0.0, 1 - r / c) + logs / ORDER)


def words(text: str) -> list[str]:
    """The words and signs of a line, by the rules of mteval-v13a."""
    line = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, sign in ENTITIES:
        line = line.replace(entity, sign)
    line = f" {line} "
    for pattern, by in CUTS:
        line = pattern.sub(by, line)
    return line.split()


def runs(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """How often each run of n words occurs."""
    return Counter(zip(*(tokens[k:] for k in range(n)), strict=False))
