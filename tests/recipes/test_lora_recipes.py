"""A trained run goes on with another text, whole or through LoRA's thin matrices."""

import pytest
import torch

import didact
from didact.errors import UsageError
from didact.layers.lora import LoRA, merge
from didact.objectives.writing import Manner
from didact.registry import RECIPES
from didact.samplers.text import continued
from didact.train.experiment import Start
from didact.train.session import evaluate, prepare, restored

SMALL = {"layers": 2, "heads": 2, "width": 32, "context": 16, "batch": 16, "lr": 1e-2}
FIRST = "to be or not to be, that is the question. "
SECOND = "not that it is quite the best, but so it is. "


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    (folder / "first.txt").write_text(FIRST * 100)
    (folder / "second.txt").write_text(SECOND * 100)
    return didact.train(RECIPES["gpt"], data=str(folder / "first.txt"), runs=str(folder), steps=80, **SMALL), folder


@pytest.fixture(scope="module", params=["gpt"])
def adapted(base):
    run, folder = base
    return didact.train(
        RECIPES["gpt"], data=str(folder / "second.txt"), weights=str(run.folder), lora=4, thaw=False, runs=str(folder), steps=80, **SMALL
    )


def test_thin_matrices_learn_another_text(base, adapted):
    run, _ = base
    objective, data = restored(adapted)
    learned = sum(p.numel() for p in objective.parameters() if p.requires_grad)
    # rank 4 beside D x 3D, D x D, D x 4D and 4D x D in both layers: 4 · (4D + 2D + 5D + 5D)
    assert learned == 2 * 4 * 16 * 32 and any(f"{learned:,} numbers learn" in note for note in adapted.facts["notes"])
    assert adapted.facts["test"]["perplexity"] < 2                                   # 15 characters by chance
    first, _ = restored(run)
    known = {c: i for i, c in enumerate(run.facts["data"]["labels"])}
    for c, row in zip(data.labels, objective.network.wte.weight, strict=True):        # frozen, and found by the character's name
        if c in known:
            assert torch.equal(row, first.network.wte.weight[known[c]])
    assert evaluate(adapted)["test"]["loss"] == pytest.approx(adapted.facts["test"]["loss"], rel=1e-4)


@pytest.mark.parametrize("model", ["gpt", "llama"])
def test_the_embedding_learns_too_unless_it_is_told_not_to(base, model):
    run, folder = base
    given = {"data": str(folder / "second.txt"), "weights": str(run.folder), "runs": str(folder), "model": model, "lora": 2, **SMALL}
    counts = [
        sum(p.numel() for p in prepare("gpt", {**given, "thaw": thaw}).experiment.objective.players()[0].parameters[0]["params"])
        for thaw in (True, False)
    ]
    assert counts[0] - counts[1] == 32 * len(set(SECOND))


def test_merged_it_writes_the_same(adapted):
    objective, _ = restored(adapted)
    x = torch.randint(10, (2, 16))
    with torch.no_grad():
        before = objective.network(x)
        assert merge(objective) == 8 and not any(isinstance(m, LoRA) for m in objective.modules())
        torch.testing.assert_close(objective.network(x), before, atol=1e-4, rtol=1e-4)
    assert continued(adapted, "not that it is q", tokens=9, manner=Manner(temperature=0)) == ["uite the "]


def test_going_on_from_a_run_that_lora_adapted(base, adapted):
    _, folder = base
    prepared = prepare("gpt", {"data": str(folder / "second.txt"), "weights": str(adapted.folder), "runs": str(folder), **SMALL})
    assert "0 of" in prepared.experiment.begin(Start(torch.device("cpu")))[0]
    theirs, _ = restored(adapted)
    x = torch.randint(10, (2, 16))
    with torch.no_grad():
        torch.testing.assert_close(prepared.experiment.objective.network(x), theirs.network(x), atol=1e-4, rtol=1e-4)


def test_thin_matrices_beside_every_expert(base):
    _, folder = base
    small = {**SMALL, "layers": 1, "experts": 3, "runs": str(folder)}
    run = didact.train(RECIPES["gpt"], data=str(folder / "first.txt"), steps=60, **small)
    after = didact.train(RECIPES["gpt"], data=str(folder / "second.txt"), weights=str(run.folder), lora=4, thaw=False, steps=80, **small)
    objective, _ = restored(after)
    # rank 4 beside D x 3D and D x D, and in three experts beside three matrices of D x 8D/3: the router stays
    assert f"{4 * 6 * 32 + 3 * 3 * 4 * (32 + 85):,} numbers learn" in " ".join(after.facts["notes"])
    assert torch.equal(objective.network.h[0].mlp.router.weight, restored(run)[0].network.h[0].mlp.router.weight)
    assert after.facts["test"]["perplexity"] < 2                                     # 15 characters by chance
    assert len(continued(after, "not that", tokens=9)[0]) == 9


def test_a_classifier_of_texts_keeps_its_words(here):
    small = {"layers": 1, "heads": 2, "width": 32, "hidden": 64, "lr": 5e-3, "length": 12}
    run = didact.train(RECIPES["text_transformer"], epochs=2, **small)
    rows = [f"the {thing} was {'fine' if i % 2 else 'dull'},{'yes' if i % 2 else 'no'}" for i in range(80) for thing in ("music", "story")]
    (here / "own.csv").write_text("review,liked\n" + "\n".join(rows) + "\n")
    own = {"data": "own.csv", "text": "review", "target": "liked", "weights": str(run.folder)}
    for lora in (None, 2):
        after = didact.train(RECIPES["text_transformer"], lora=lora, epochs=40, **own, **small)
        assert after.facts["test"]["accuracy"] > 0.9
        weight = restored(after)[0].network.blocks[0].attention.sublayer
        assert any(isinstance(m, LoRA) for m in weight.modules()) == (lora is not None)


@pytest.mark.parametrize(("given", "complaint"), [
    ({"lora": 4}, "--lora 4 adapts what was learned before; add --weights RUN"),
    ({"weights": "RUN", "width": 48, "lora": 4}, "was trained with --width 32, got --width 48; give the same"),
    ({"weights": "RUN", "lora": 400}, "the rank must be from 1 to 32"),
    ({"weights": "nowhere"}, "no weights at nowhere: give a run of gpt"),
])
def test_bad_input(base, given, complaint):
    run, folder = base
    given = {name: str(run.folder) if value == "RUN" else value for name, value in given.items()}
    with pytest.raises(UsageError, match=complaint):
        didact.train(RECIPES["gpt"], data=str(folder / "second.txt"), runs=str(folder), **{**SMALL, **given})
