"""Every section of a course that didact cites is one that the course has, and what a recipe cites is about what the
recipe does."""

import re
from pathlib import Path

import pytest

import didact.recipes  # noqa: F401 (registers the catalogue)
from didact.claims.measured_tables import TABLES
from didact.claims.registry import load_statements
from didact.registry import RECIPES
from helpers.course_citations import (
    COURSES,
    ROOT,
    Citation,
    expand_range,
    find_citations,
    load_headings,
    parse_course_citations,
)

TEXT_SUFFIXES = (".py", ".md", ".toml", ".css", ".js", ".json", ".yml", ".tsv")
FOLDERS = ("src", "tests", "docs", "benchmarks", "tools")
# this folder is about wrong citations, stated.tsv has a column for places, and a table's JSON is didact's own
# measurement
FILES = sorted(
    path
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*")
    if path.suffix in TEXT_SUFFIXES
    and path.parent != Path(__file__).parent
    and not {"__pycache__", "node_modules"} & set(path.parts)
) + sorted(path for path in ROOT.glob("*") if path.suffix in TEXT_SUFFIXES)


def find_missing(citations: "list[Citation]") -> list[str]:
    """Those that are not there; an equation that is numbered within its page alone, as (1), cannot be looked up."""
    checkable = [c for c in citations if c.kind == "chapter" or "." in c.number]
    return [f"{c.course} {c.kind} {c.number}" for c in checkable if c not in load_headings()]


def test_every_citation_exists_in_its_course():
    citations_by_file = {
        str(path.relative_to(ROOT)): list(find_citations(path.read_text(encoding="utf-8"))) for path in FILES
    }
    assert sum(map(len, citations_by_file.values())) > 700 and sum(bool(c) for c in citations_by_file.values()) > 150, (
        "the expression sees too few"
    )
    assert {course for c in citations_by_file.values() for course, *_ in c} == set(COURSES)
    assert {
        path: missing_citations
        for path, citations in citations_by_file.items()
        if (missing_citations := find_missing(citations))
    } == {}


def test_every_statement_cites_an_existing_section():
    citations_by_id = {s.id: list(parse_course_citations(s.course, s.where)) for s in load_statements().values()}
    assert {id for id, citations in citations_by_id.items() if not citations} == {"CF48"}, (
        "of Fleuret's pages without a number"
    )
    assert {
        id: missing_citations
        for id, citations in citations_by_id.items()
        if (missing_citations := find_missing(citations))
    } == {}


def test_every_statement_cites_its_own_chapter():
    for s in load_statements().values():
        chapters = {c.number.split(".")[0] for c in parse_course_citations(s.course, s.where) if "." in c.number}
        if s.chapter.isdigit():
            assert s.chapter in chapters or not chapters, f"{s.id}: {s.where} is not in chapter {s.chapter}"


def test_every_table_cites_an_existing_section():
    for table in TABLES.values():
        assert find_missing(list(find_citations(table.citation))) == [], table.citation


# of each recipe words of which every section that it cites has one in its heading, or beside it in headings.tsv
SUBJECTS = {
    "approximate": "approximation|perceptron",
    "autoencoder": "autoencoder|denoising",
    "bagging": "bagging|ensemble",
    "bert": "bert|transformer",
    "char_rnn": "rnn|recurrent|lstm|gru|mamba|writing text",
    "cnn": "convolution",
    "cnn_ablation": "convolution|pooling",
    "consistency": "consistency",
    "copy_task": "lstm|gru|rnn|vanishing",
    "dcgan": "dc-?gan",
    "denoising": "denoising",
    "detection": "detection",
    "diffusion": "diffusion|image generation|ddpm|reverse process",
    "dropout_weight_decay": "dropout and weight decay",
    "fasttext": "embeddings|tokens",
    "fine_tune": "bert|transformer|finetuning|freezing|lora",
    "flow_matching": "flow matching",
    "forecast": "time series|recurrent|gru",
    "gan": r"\bgans?\b",
    "gpt": "gpt|transformer|language models|decoder",
    "grokking": "grokking",
    "latent_diffusion": "latent diffusion",
    "mlp": "perceptron|mlp|deep networks",
    "mlp_wide_deep": "wide and deep",
    "optimizers": "optimi[sz]",
    "pixelcnn": "pixelcnn|pixelrnn|autoregressive",
    "pixelrnn": "pixelrnn",
    "realnvp": "flow|bijective",
    "regularized_mlp": "regulari[sz]|dropout|initialization|stochastic depth",
    "scratch_gpt": "gpt|transformer",
    "scratch_lenet": "lenet|convolution",
    "scratch_manual": "backpropagation|gradients",
    "scratch_mlp": "perceptron|automatic differentiation|without pytorch",
    "scratch_rnn": "rnn|recurrent|lstm",
    "segmentation": "segmentation",
    "semi_supervised": "semi-supervised|few labels",
    "seq2seq": "sequence.to.sequence|bahdanau|luong",
    "stylegan": "stylegan",
    "tabular": "early stopping",
    "text_rnn": "lstm|rnn",
    "text_transformer": "transformer",
    "transfer": "transfer learning|object detection",
    "translate": "transformer|positional|encoder-decoder",
    "uncertain_regression": "heteroscedastic|dropout as a model ensemble",
    "vae": "variational|vae",
    "vqvae": "vq-vae",
    "vqvae_prior": "vq-vae|pixelcnn",
    "wgan": "wgan",
    "word2vec": "word2vec",
}
PAPER_PATTERN = r"[A-Z][\w-]+(?: (?:and|&) [A-Z][\w-]+| et al\.)? \d{4}"


def test_every_recipe_has_a_subject():
    assert set(SUBJECTS) == set(RECIPES)


@pytest.mark.parametrize("name", sorted(RECIPES))
def test_recipe_sources_match_the_subject_of_the_recipe(name):
    for source in RECIPES[name].sources:
        if re.fullmatch(PAPER_PATTERN, source):
            continue
        (citation,) = find_citations(source)
        assert re.search(SUBJECTS[name], load_headings()[citation], re.IGNORECASE), (
            f"{name} cites {source}: {load_headings()[citation]}"
        )


def test_only_mlp_wide_deep_cites_papers_alone():
    assert [name for name, r in RECIPES.items() if not any(s.startswith(COURSES) for s in r.sources)] == [
        "mlp_wide_deep"
    ]


@pytest.mark.parametrize(("text", "expected"), [
    ("Gaba 4.9, Ex 4.4.", "section 4.9, exercise 4.4"),
    ("Gaba eq. 6.2-6.4, Groudiev 6.1.2.", "equation 6.2, equation 6.3, equation 6.4, section 6.1.2"),
    ("Gaba eqs. 9.24–9.25, Ex 9.5", "equation 9.24, equation 9.25, exercise 9.5"),
    ("Gaba 7, Fleuret 5.3, Lhotte 8, 9 |", "chapter 7, section 5.3, chapter 8, chapter 9"),
    ("Gaba 2.7, 20 inputs", "section 2.7"),
    ("Groudiev, chapters 4 to 6: convolutions", "chapter 4, chapter 5, chapter 6"),
    ("Gaba's definition 4.1 says; Gaba's table says R", "definition 4.1"),
    ("Gaba Rem. 5.6, mistake M31", "remark 5.6"),
    ("Gaba, table 9.1), Van Schependom\n    7.6.3", "table 9.1, section 7.6.3"),
    ("Fleuret 5.2, figs. 5.3-5.4.", "section 5.2, figure 5.3, figure 5.4"),
    ("the tables of Gaba: 10.8, Groudiev i, f, o, g; Gaba's 3 words", "chapter 3"),
    ("Gaba Ex 1.1, 2.6.1", "exercise 1.1, section 2.6.1"),
    ("(Gaba, Deep Learning, 2025)", ""),
])
def test_find_citations(text, expected):
    assert ", ".join(f"{c.kind} {c.number}" for c in find_citations(text)) == expected


def test_expand_range():
    assert (
        expand_range("3.9", "3.11") == ["3.9", "3.10", "3.11"]
        and expand_range("2", None) == ["2"]
        and expand_range("2.4.2", "2.5") == ["2.4.2", "2.5"]
    )


def test_wrong_citations_are_reported_missing():
    """The citations that were wrong until this was tested: sections past the end, equations called sections."""
    wrong_citations = (
        "Lhotte 9.4, Gaba 3.34, Gaba 11.13-11.14, Gaba 5.15, Gaba 7.12, Groudiev 13, Van Schependom 3.4, Gaba Ex 1.6, "
        "Gaba eq. 3.36"
    )
    assert len(find_missing(list(find_citations(wrong_citations)))) == len(list(find_citations(wrong_citations))) == 10
