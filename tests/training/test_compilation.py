"""--compile: what can be compiled is, what cannot runs as it stands and is named; the trial leaves no trace."""

import pytest
import torch
from torch._dynamo.exc import Unsupported

import didact
from didact.registry import RECIPES
from didact.run import Run
from didact.training import compilation
from didact.training.compilation import describe_failure
from didact.training.experiment import Settings
from didact.training.loop import Trainer
from helpers.small_experiments import make_classifier
from helpers.smallest_runs import SMALLEST_RUNS


def make_fake_compiler(fails):
    """torch.compile as a stand-in: runs the function itself, or fails as it is told."""
    return lambda loss: lambda batch, player: fails(loss, batch, player)


def forward_fails(loss, batch, player):
    raise Unsupported("cannot trace this\nUnsupported: a thing that it cannot trace\nSet TORCHDYNAMO_VERBOSE=1")


class BackwardFails(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        raise RuntimeError("Unexpected floating ScalarType in autocast")


def backward_fails(loss, batch, player):
    parts = loss(batch, player)
    return {**parts, "loss": BackwardFails.apply(parts["loss"])}


def nothing_fails(loss, batch, player):
    return loss(batch, player)


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        (forward_fails, "Unsupported: a thing that it cannot trace"),
        (backward_fails, "Unexpected floating Scalar"),
        (nothing_fails, None),
    ],
)
@pytest.mark.parametrize("recipe", ["mlp", "gan", "cnn"])
def test_training_equals_eager_where_compiling_fails(recipe, fails, reason, workdir, monkeypatch):
    """Dropout, batch norm's statistics and two players: what the trial drew or counted must not be missed by the
    training."""
    options = {**SMALLEST_RUNS[recipe], "steps": 4, "device": "cpu"}
    eager = didact.train(RECIPES[recipe], **options)
    monkeypatch.setattr(compilation.torch, "compile", make_fake_compiler(fails))
    events = []
    run = didact.train(
        RECIPES[recipe], **options, compile=True, on_event=lambda event, facts: events.append((event, facts))
    )
    assert (run.folder / "model.safetensors").read_bytes() == (eager.folder / "model.safetensors").read_bytes()
    notes = [payload["text"] for event, payload in events if event == "note"]
    assert len(notes) == (reason is not None)
    assert all(note in run.metadata["notes"] and reason in note and "runs eagerly" in note for note in notes)


def test_later_batch_that_fails_to_compile_runs_eagerly(monkeypatch):
    """300 rows in batches of 32 leave one of 12, for which torch.compile compiles anew."""
    def fails_on_short(loss, batch, player):
        if len(batch["y"]) < 32:
            raise Unsupported("short")
        return loss(batch, player)

    monkeypatch.setattr(compilation.torch, "compile", make_fake_compiler(fails_on_short))
    t = Trainer(make_classifier(epochs=2), Settings(compile=True), device=torch.device("cpu"))
    t.train()
    assert t.train_step.compiled_losses["model"].failure and t.state.stop_reason == "budget"


def test_describe_failure_gives_one_line():
    message = (
        "backend='inductor' raised:\nRuntimeError: Unexpected floating ScalarType\n\nSet TORCHDYNAMO_VERBOSE=1 for more"
    )
    assert describe_failure(RuntimeError(message)) == "RuntimeError: Unexpected floating ScalarType"
    assert describe_failure(KeyError()) == "KeyError"


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # of the compiler's own modules
TORCH_RECIPES = [name for name in sorted(SMALLEST_RUNS) if not name.startswith("scratch")]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", TORCH_RECIPES)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_recipe_compiles_or_notes_why_not(recipe, precision, workdir):
    run = didact.train(RECIPES[recipe], **SMALLEST_RUNS[recipe], steps=3, compile=True, precision=precision)
    assert run.metadata["status"] == "finished"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("recipe", TORCH_RECIPES)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_every_recipe_compiles_or_notes_why_not_on_cuda(recipe, precision, workdir):
    run = didact.train(
        RECIPES[recipe], **SMALLEST_RUNS[recipe], steps=6, compile=True, precision=precision, device="cuda"
    )
    assert run.metadata["status"] == "finished"


def test_compile_note_is_kept_once_over_resumes(workdir, monkeypatch):
    from didact.api import resume

    monkeypatch.setattr(compilation.torch, "compile", make_fake_compiler(forward_fails))
    monkeypatch.setattr(Trainer, "is_save_due", lambda self, gap: self.run is not None)
    train_round = Trainer.train_round

    def die_at_step(self, stored, rows):
        if self.state.step == 2:
            raise SystemExit
        train_round(self, stored, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "train_round", die_at_step)
        with pytest.raises(SystemExit):
            didact.train(RECIPES["mlp"], **SMALLEST_RUNS["mlp"], steps=4, compile=True)
    run = resume(Run.open("mlp/latest"))
    assert sum("--compile" in note for note in run.metadata["notes"]) == 1
