"""BLEU of a whole corpus of translations, with the tokenization of WMT's own script."""

import re
from collections import Counter
from collections.abc import Sequence
from math import exp, log

_MAX_NGRAM = 4

_ENTITIES = (("&quot;", '"'), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">"))
_TOKENIZER_RULES = tuple((re.compile(pattern), by) for pattern, by in (
    (r"([!-&(-+/:-@\[-`{-~])", r" \1 "),   # ASCII punctuation but ' , - . is a token of its own
    (r"([^0-9])([.,])", r"\1 \2 "),           # periods and commas are, unless between digits
    (r"([.,])([^0-9])", r" \1 \2"),
    (r"([0-9])(-)", r"\1 \2 "),               # a dash after a digit is
))


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """100 · min(1, e^(1 − r/c)) · (p_1 p_2 p_3 p_4)^¼ over the whole corpus, r and c words in references and
    translations.

    p_n is the fraction of n-grams that the reference has too, each at most as often as there; a p_n of 0 counts as 1 /
    (2 · n-grams), and half as much again at each further one. Papineni et al. 2002. Equal to sacrebleu's default (13a,
    exp).
    """
    matches, totals = [0] * _MAX_NGRAM, [0] * _MAX_NGRAM
    c = r = 0
    for hypothesis, reference in zip(map(tokenize_13a, hypotheses), map(tokenize_13a, references), strict=True):
        c, r = c + len(hypothesis), r + len(reference)
        for n in range(1, _MAX_NGRAM + 1):
            counts = _ngram_counts(hypothesis, n)
            matches[n - 1] += (counts & _ngram_counts(reference, n)).total()
            totals[n - 1] += counts.total()
    if not any(matches) or not all(totals):
        return 0.0
    logs, zeros = 0.0, 0
    for hits, total in zip(matches, totals, strict=True):
        zeros += hits == 0
        logs += log(hits / total if hits else 1 / (2**zeros * total))
    return 100 * exp(min(0.0, 1 - r / c) + logs / _MAX_NGRAM)


def tokenize_13a(text: str) -> list[str]:
    """Words and punctuation of a line, by the rules of mteval-v13a."""
    line = text.rstrip().replace("<skipped>", "").replace("-\n", "").replace("\n", " ")
    for entity, sign in _ENTITIES:
        line = line.replace(entity, sign)
    line = f" {line} "
    for pattern, replacement in _TOKENIZER_RULES:
        line = pattern.sub(replacement, line)
    return line.split()


def _ngram_counts(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """How often each n-gram occurs."""
    return Counter(zip(*(tokens[k:] for k in range(n)), strict=False))
