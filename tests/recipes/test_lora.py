"""A trained run continues on another text, fully or by LoRA."""

import pytest
import torch

import didact
from didact.adaptation.lora import LoRA, merge_lora
from didact.errors import UsageError
from didact.inference.evaluate import evaluate
from didact.inference.generate_text import generate_continuations
from didact.registry import RECIPES
from didact.samplers.top_k_top_p import DecodingConfig
from didact.training.experiment import InitContext
from didact.training.prepare import prepare
from didact.training.restore import load_model

SMALL = {"num_layers": 2, "num_heads": 2, "embed_dim": 32, "context_length": 16, "batch_size": 16, "lr": 1e-2}
FIRST = "to be or not to be, that is the question. "
SECOND = "not that it is quite the best, but so it is. "


@pytest.fixture(scope="module")
def base_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    (folder / "first.txt").write_text(FIRST * 100)
    (folder / "second.txt").write_text(SECOND * 100)
    return didact.train(RECIPES["gpt"], data=str(folder / "first.txt"), runs=str(folder), steps=80, **SMALL), folder


@pytest.fixture(scope="module", params=["gpt"])
def adapted_run(base_run):
    run, folder = base_run
    return didact.train(
        RECIPES["gpt"],
        data=str(folder / "second.txt"),
        weights=str(run.folder),
        lora_rank=4,
        train_embedding=False,
        runs=str(folder),
        steps=80,
        **SMALL,
    )


def test_lora_learns_another_text(base_run, adapted_run):
    run, _ = base_run
    objective, data = load_model(adapted_run)
    trainable_count = sum(p.numel() for p in objective.parameters() if p.requires_grad)
    # rank 4 beside D x 3D, D x D, D x 4D and 4D x D in both layers: 4 · (4D + 2D + 5D + 5D)
    assert trainable_count == 2 * 4 * 16 * 32 and any(
        f"{trainable_count:,} trainable parameters" in note for note in adapted_run.metadata["notes"]
    )
    assert adapted_run.metadata["test"]["perplexity"] < 2                                   # 15 characters by chance
    base_model, _ = load_model(run)
    char_indices = {c: i for i, c in enumerate(run.metadata["data"]["class_names"])}
    # frozen, and found by the character's name
    for c, row in zip(data.class_names, objective.network.wte.weight, strict=True):
        if c in char_indices:
            assert torch.equal(row, base_model.network.wte.weight[char_indices[c]])
    assert evaluate(adapted_run)["test"]["loss"] == pytest.approx(adapted_run.metadata["test"]["loss"], rel=1e-4)


@pytest.mark.parametrize("model", ["gpt", "llama"])
def test_lora_trains_the_embedding_by_default(base_run, model):
    run, folder = base_run
    options = {
        "data": str(folder / "second.txt"),
        "weights": str(run.folder),
        "runs": str(folder),
        "model": model,
        "lora_rank": 2,
        **SMALL,
    }
    counts = [
        sum(
            p.numel()
            for p in prepare("gpt", {**options, "train_embedding": thaw})
            .experiment.objective.players()[0]
            .parameters[0]["params"]
        )
        for thaw in (True, False)
    ]
    assert counts[0] - counts[1] == 32 * len(set(SECOND))


def test_merged_lora_writes_the_same_text(adapted_run):
    objective, _ = load_model(adapted_run)
    x = torch.randint(10, (2, 16))
    with torch.no_grad():
        before = objective.network(x)
        assert merge_lora(objective) == 8 and not any(isinstance(m, LoRA) for m in objective.modules())
        torch.testing.assert_close(objective.network(x), before, atol=1e-4, rtol=1e-4)
    assert generate_continuations(
        adapted_run, "not that it is q", tokens=9, decoding=DecodingConfig(temperature=0)
    ) == ["uite the "]


def test_gpt_starts_from_a_run_adapted_by_lora(base_run, adapted_run):
    _, folder = base_run
    prepared = prepare(
        "gpt", {"data": str(folder / "second.txt"), "weights": str(adapted_run.folder), "runs": str(folder), **SMALL}
    )
    assert "0 of" in prepared.experiment.initialize_weights(InitContext(torch.device("cpu")))[0]
    adapted_model, _ = load_model(adapted_run)
    x = torch.randint(10, (2, 16))
    with torch.no_grad():
        torch.testing.assert_close(
            prepared.experiment.objective.network(x), adapted_model.network(x), atol=1e-4, rtol=1e-4
        )


def test_lora_adapts_every_expert(base_run):
    _, folder = base_run
    small_options = {**SMALL, "num_layers": 1, "num_experts": 3, "runs": str(folder)}
    run = didact.train(RECIPES["gpt"], data=str(folder / "first.txt"), steps=60, **small_options)
    after = didact.train(
        RECIPES["gpt"],
        data=str(folder / "second.txt"),
        weights=str(run.folder),
        lora_rank=4,
        train_embedding=False,
        steps=80,
        **small_options,
    )
    objective, _ = load_model(after)
    # rank 4 beside D x 3D and D x D, and in three experts beside three matrices of D x 8D/3: the router stays
    assert f"{4 * 6 * 32 + 3 * 3 * 4 * (32 + 85):,} trainable parameters" in " ".join(after.metadata["notes"])
    assert torch.equal(objective.network.h[0].mlp.router.weight, load_model(run)[0].network.h[0].mlp.router.weight)
    assert after.metadata["test"]["perplexity"] < 2                                     # 15 characters by chance
    assert len(generate_continuations(after, "not that", tokens=9)[0]) == 9


def test_text_transformer_adapts_to_new_labels(workdir):
    small_options = {"num_layers": 1, "num_heads": 2, "embed_dim": 32, "ffn_dim": 64, "lr": 5e-3, "max_length": 12}
    run = didact.train(RECIPES["text_transformer"], epochs=2, **small_options)
    rows = [
        f"the {thing} was {'fine' if i % 2 else 'dull'},{'yes' if i % 2 else 'no'}"
        for i in range(80)
        for thing in ("music", "story")
    ]
    (workdir / "own.csv").write_text("review,liked\n" + "\n".join(rows) + "\n")
    table_options = {"data": "own.csv", "text": "review", "target": "liked", "weights": str(run.folder)}
    for lora in (None, 2):
        after = didact.train(RECIPES["text_transformer"], lora_rank=lora, epochs=40, **table_options, **small_options)
        assert after.metadata["test"]["accuracy"] > 0.9
        weight = load_model(after)[0].network.blocks[0].attention.sublayer
        assert any(isinstance(m, LoRA) for m in weight.modules()) == (lora is not None)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"lora_rank": 4}, "--lora-rank 4 adapts pretrained weights; add --weights RUN"),
        (
            {"weights": "RUN", "embed_dim": 48, "lora_rank": 4},
            "was trained with --embed-dim 32, got --embed-dim 48; give the same",
        ),
        ({"weights": "RUN", "lora_rank": 400}, "the rank must be from 1 to 32"),
        ({"weights": "nowhere"}, "no weights at nowhere: give a run of gpt"),
    ],
)
def test_lora_refuses_bad_options(base_run, options, complaint):
    run, folder = base_run
    options = {name: str(run.folder) if value == "RUN" else value for name, value in options.items()}
    with pytest.raises(UsageError, match=complaint):
        didact.train(RECIPES["gpt"], data=str(folder / "second.txt"), runs=str(folder), **{**SMALL, **options})
