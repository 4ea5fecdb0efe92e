"""--compile: what can be compiled is, what cannot runs as it stands and is named; the trial leaves no trace."""

import pytest
import torch
from making import classify
from torch._dynamo.exc import Unsupported

import didact
from didact.registry import RECIPES
from didact.run import Run
from didact.train import compilation
from didact.train.compilation import describe_failure
from didact.train.experiment import Settings
from didact.train.loop import Training
from smallest import SMALLEST


def compiler_that(fails):
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
    ("fails", "why"),
    [(forward_fails, "Unsupported: a thing that it cannot trace"), (backward_fails, "Unexpected floating Scalar"), (nothing_fails, None)],
)
@pytest.mark.parametrize("recipe", ["mlp", "gan", "cnn"])
def test_training_is_the_eager_one_where_compiling_fails(recipe, fails, why, here, monkeypatch):
    """Dropout, batch norm's statistics and two players: what the trial drew or counted must not be missed by the training."""
    given = {**SMALLEST[recipe], "steps": 4, "device": "cpu"}
    eager = didact.train(RECIPES[recipe], **given)
    monkeypatch.setattr(compilation.torch, "compile", compiler_that(fails))
    heard = []
    run = didact.train(RECIPES[recipe], **given, compile=True, tell=lambda event, facts: heard.append((event, facts)))
    assert (run.folder / "model.safetensors").read_bytes() == (eager.folder / "model.safetensors").read_bytes()
    notes = [facts["text"] for event, facts in heard if event == "note"]
    assert len(notes) == (why is not None)
    assert all(note in run.facts["notes"] and why in note and "runs eagerly" in note for note in notes)


def test_a_later_batch_that_cannot_be_compiled_runs_eagerly(monkeypatch):
    """300 rows in batches of 32 leave one of 12, for which torch.compile compiles anew."""
    def fails_on_short(loss, batch, player):
        if len(batch["y"]) < 32:
            raise Unsupported("short")
        return loss(batch, player)

    monkeypatch.setattr(compilation.torch, "compile", compiler_that(fails_on_short))
    t = Training(classify(epochs=2), Settings(compile=True), device=torch.device("cpu"))
    t.train()
    assert t.step.compiled["model"].failure and t.state.stopped == "budget"


def test_the_cause_is_one_line_of_many():
    message = "backend='inductor' raised:\nRuntimeError: Unexpected floating ScalarType\n\nSet TORCHDYNAMO_VERBOSE=1 for more"
    assert describe_failure(RuntimeError(message)) == "RuntimeError: Unexpected floating ScalarType"
    assert describe_failure(KeyError()) == "KeyError"


pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # of the compiler's own modules
EVERY = [name for name in sorted(SMALLEST) if not name.startswith("scratch")]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", EVERY)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_recipe_compiles_or_says_why_not(recipe, precision, here):
    run = didact.train(RECIPES[recipe], **SMALLEST[recipe], steps=3, compile=True, precision=precision)
    assert run.facts["status"] == "finished"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("recipe", EVERY)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_every_recipe_compiles_or_says_why_not_on_cuda(recipe, precision, here):
    run = didact.train(RECIPES[recipe], **SMALLEST[recipe], steps=6, compile=True, precision=precision, device="cuda")
    assert run.facts["status"] == "finished"


def test_notes_are_kept_once_however_often_it_is_resumed(here, monkeypatch):
    from didact.train.session import resume

    monkeypatch.setattr(compilation.torch, "compile", compiler_that(forward_fails))
    monkeypatch.setattr(Training, "save_due", lambda self, gap: self.run is not None)
    advance = Training.advance

    def dying(self, stored, rows):
        if self.state.step == 2:
            raise SystemExit
        advance(self, stored, rows)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "advance", dying)
        with pytest.raises(SystemExit):
            didact.train(RECIPES["mlp"], **SMALLEST["mlp"], steps=4, compile=True)
    run = resume(Run.open("mlp/latest"))
    assert sum("--compile" in note for note in run.facts["notes"]) == 1
