"""On a GPU: a captured step is the step, data stay there, and a run moves between devices."""

from functools import partial

import pytest
import torch
from making import blobs, classify, network, weights

from didact.objectives.likelihoods import Categorical
from didact.objectives.supervised import Classify
from didact.optim.named import make
from didact.optim.schedule import cosine, one_cycle
from didact.train.experiment import Settings
from didact.train.loop import Training
from didact.train.session import prepare
from small import SMALL

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def train(experiment, *, graph: bool, **settings) -> Training:
    experiment.objective.load_state_dict(Classify(network(5, 3), Categorical(3)).state_dict())
    t = Training(experiment, Settings(graph=graph, **settings), device=torch.device("cuda"))
    t.train()
    return t


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "momentum", "lion", "lamb", "lars", "sam"])
def test_captured_equals_eager(name):
    """300 rows in batches of 32 leave a last batch of another size, which is run as it stands in between."""
    changes = {"optimizer": make(name, lr=1e-3), "schedule": cosine(), "clip_norm": 1.0, "epochs": 6}
    captured, eager = train(classify(**changes), graph=True), train(classify(**changes), graph=False)
    assert captured.step.graph is not None and eager.step.graph is None
    torch.testing.assert_close(weights(captured), weights(eager), atol=1e-5, rtol=1e-4)
    assert captured.state.fingerprint == pytest.approx(eager.state.fingerprint, rel=1e-4)


def test_capture_with_accumulation_and_average():
    changes = {"accumulate": 3, "ema": 0.9, "epochs": 4}
    captured, eager = train(classify(**changes), graph=True), train(classify(**changes), graph=False)
    torch.testing.assert_close(weights(captured), weights(eager), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("case", SMALL)
def test_whoever_draws_is_captured_and_learns_as_without(case):
    """The noise of a replay goes on where the last one ended, so that both see the same; players and their optimizers are several."""
    losses = []
    for graph in (True, False):
        experiment = prepare(case.split()[0], {**SMALL[case], "steps": 10, "batch": 32}).experiment
        t = Training(experiment, Settings(graph=graph), device=torch.device("cuda"))
        t.train()
        assert (t.step.graph is not None) == graph
        losses.append(t.latest)                                  # of every player, in the last steps
    assert losses[0] == pytest.approx(losses[1], rel=0.05, abs=2e-3)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_captured_warm_up_counts_its_steps(accumulate):
    experiment = prepare("vae", {"widths": (8,), "warmup": 20, "steps": 10, "batch": 32, "accumulate": accumulate}).experiment
    t = Training(experiment, Settings(), device=torch.device("cuda"))
    t.train()
    assert t.step.graph is not None and experiment.objective.taken.item() == 10


def test_dropout_and_noise_are_drawn_anew_in_every_replay():
    def noisy(batch, generator):
        return {**batch, "x": batch["x"] + torch.randn(batch["x"].shape, device="cuda", generator=generator)}

    t = train(classify(dropout=0.5, augment=noisy, epochs=4), graph=True)
    assert t.step.graph is not None
    stored, rows = next(iter(t.epoch()))
    seen = set()
    for _ in range(4):
        t.step(stored, rows)
        seen.add(float(t.step.last))
    assert len(seen) == 4


def test_a_momentum_that_moves_is_not_captured():
    assert train(classify(schedule=one_cycle(), epochs=3), graph=True).step.graph is None


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns(precision):
    t = train(classify(epochs=10), graph=True, precision=precision)
    assert t.state.validation["accuracy"] > 0.9
    assert (t.step.graph is not None) == (precision == "bf16")


def test_memory_on_the_device_stays_flat():
    held = []
    experiment = classify(blobs(rows=2000), epochs=20)
    t = Training(experiment, Settings(), device=torch.device("cuda"))
    t.tell = lambda event, facts: held.append(torch.cuda.memory_allocated()) if event == "evaluate" else None
    t.train()
    assert max(held[5:]) <= max(held[:5]) + 2**20


def test_a_cpu_checkpoint_goes_on_here(tmp_path):
    from didact.run import Run

    run = Run.create(tmp_path, "x")
    first = Training(classify(epochs=3, optimizer=partial(torch.optim.AdamW, lr=1e-2)), Settings(), device=torch.device("cpu"), run=run)
    first.train()
    second = Training(classify(epochs=6), Settings(), device=torch.device("cuda"), run=run)
    second.restore(run.load_state())
    second.state.stopped = ""
    assert second.train().step == second.plan.total
