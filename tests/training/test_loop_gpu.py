"""On a GPU: a captured step is the step, data stay there, and a run moves between devices."""

from functools import partial

import pytest
import torch

from didact.objectives.distributions.classification import Categorical
from didact.objectives.supervised import Classify
from didact.optim.factory import make_optimizer
from didact.optim.schedule import Cosine, OneCycle
from didact.training.checkpoint import restore_checkpoint
from didact.training.experiment import Settings
from didact.training.loop import Trainer
from didact.training.prepare import prepare
from helpers.small_experiments import flatten_weights, make_blobs, make_classifier, make_network
from helpers.small_generative_runs import SMALL_GENERATIVE_RUNS

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def train_on_gpu(experiment, *, graph: bool, **settings) -> Trainer:
    experiment.objective.load_state_dict(Classify(make_network(5, 3), Categorical(3)).state_dict())
    t = Trainer(experiment, Settings(graph=graph, **settings), device=torch.device("cuda"))
    t.train()
    return t


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "momentum", "lion", "lamb", "lars", "sam"])
def test_captured_graph_equals_eager(name):
    """300 rows in batches of 32 leave a last batch of another size, which is run as it stands in between."""
    changes = {"optimizer": make_optimizer(name, lr=1e-3), "schedule": Cosine(), "clip_norm": 1.0, "epochs": 6}
    captured_trainer, eager_trainer = train_on_gpu(make_classifier(**changes),
        graph=True), train_on_gpu(make_classifier(**changes), graph=False)
    assert captured_trainer.train_step.graph is not None and eager_trainer.train_step.graph is None
    torch.testing.assert_close(flatten_weights(captured_trainer), flatten_weights(eager_trainer), atol=1e-5, rtol=1e-4)
    assert captured_trainer.state.fingerprint == pytest.approx(eager_trainer.state.fingerprint, rel=1e-4)


def test_captured_graph_equals_eager_with_accumulation_and_ema():
    changes = {"accumulate": 3, "ema": 0.9, "epochs": 4}
    captured_trainer, eager_trainer = (
        train_on_gpu(make_classifier(**changes), graph=True),
        train_on_gpu(make_classifier(**changes), graph=False),
    )
    torch.testing.assert_close(flatten_weights(captured_trainer), flatten_weights(eager_trainer), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("case", SMALL_GENERATIVE_RUNS)
def test_captured_graph_learns_like_eager_for_every_objective(case):
    """The noise of a replay goes on where the last one ended, so that both see the same; players and their
    optimizers are several."""
    losses = []
    for graph in (True, False):
        experiment = prepare(case.split()[0], {**SMALL_GENERATIVE_RUNS[case], "steps": 10, "batch_size": 32}).experiment
        t = Trainer(experiment, Settings(graph=graph), device=torch.device("cuda"))
        t.train()
        assert (t.train_step.graph is not None) == graph
        losses.append(t.latest_losses)                                  # of every player, in the last steps
    assert losses[0] == pytest.approx(losses[1], rel=0.05, abs=2e-3)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_captured_graph_counts_kl_warmup_steps(accumulate):
    experiment = prepare(
        "vae", {"hidden": (8,), "kl_warmup": 20, "steps": 10, "batch_size": 32, "accumulate": accumulate}
    ).experiment
    t = Trainer(experiment, Settings(), device=torch.device("cuda"))
    t.train()
    assert t.train_step.graph is not None and experiment.objective.steps_taken.item() == 10


def test_captured_graph_draws_new_dropout_and_noise_in_every_replay():
    def add_noise(batch, generator):
        return {**batch, "x": batch["x"] + torch.randn(batch["x"].shape, device="cuda", generator=generator)}

    t = train_on_gpu(make_classifier(dropout=0.5, augment=add_noise, epochs=4), graph=True)
    assert t.train_step.graph is not None
    stored, rows = next(iter(t.iterate_epoch()))
    losses = set()
    for _ in range(4):
        t.train_step(stored, rows)
        losses.add(float(t.train_step.last_loss))
    assert len(losses) == 4


def test_schedule_of_momentum_is_not_captured():
    assert train_on_gpu(make_classifier(schedule=OneCycle(), epochs=3), graph=True).train_step.graph is None


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns_on_gpu(precision):
    t = train_on_gpu(make_classifier(epochs=10), graph=True, precision=precision)
    assert t.state.validation["accuracy"] > 0.9
    assert (t.train_step.graph is not None) == (precision == "bf16")


def test_gpu_memory_stays_constant():
    memory = []
    experiment = make_classifier(make_blobs(rows=2000), epochs=20)
    t = Trainer(experiment, Settings(), device=torch.device("cuda"))
    t.on_event = lambda event, facts: memory.append(torch.cuda.memory_allocated()) if event == "evaluate" else None
    t.train()
    assert max(memory[5:]) <= max(memory[:5]) + 2**20


def test_cpu_checkpoint_resumes_on_gpu(tmp_path):
    from didact.run import Run

    run = Run.create(tmp_path, "x")
    first = Trainer(
        make_classifier(epochs=3, optimizer=partial(torch.optim.AdamW, lr=1e-2)),
        Settings(),
        device=torch.device("cpu"),
        run=run,
    )
    first.train()
    second = Trainer(make_classifier(epochs=6), Settings(), device=torch.device("cuda"), run=run)
    restore_checkpoint(second, run.load_state())
    second.state.stop_reason = ""
    assert second.train().step == second.plan.total_rounds
