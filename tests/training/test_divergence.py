"""A number that is not finite stops the run, is named, and never reaches the weights that are kept."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from didact.objectives.distributions.classification import Categorical
from didact.objectives.supervised import Classify
from didact.run import Run
from didact.training.experiment import Settings
from didact.training.interrupts import DivergedError
from didact.training.loop import Trainer
from helpers.small_experiments import flatten_weights, make_classifier, make_network, make_regressor, make_trainer


class FailingLayer(nn.Module):
    """Harmless until its `fuse` has burnt down, then infinite: forward or backward only."""

    def __init__(self, fuse: int, *, backward: bool = False):
        super().__init__()
        self.fuse, self.backward = fuse, backward
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        self.passes += 1
        if self.passes < self.fuse:
            return x
        if not self.backward:
            return x / 0
        # the value is x; the gradient of the root at 0 is infinite times zero
        return x + 0 * (x - x.detach()).abs().sqrt()


def make_failing_experiment(fuse: int, **keywords: bool):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), FailingLayer(fuse, **keywords), nn.Linear(16, 3))
    return make_classifier(objective=Classify(net, Categorical(3)), epochs=10)


@pytest.mark.parametrize("fuse", [1, 9, 30])
def test_divergence_names_step_and_layer(fuse):
    with pytest.raises(DivergedError, match=rf"at step {fuse}, first in the output of network\.2;"):
        make_trainer(make_failing_experiment(fuse)).train()


@pytest.mark.parametrize("fuse", [2, 70])  # 70 is the very last step: no later loss would show it
def test_divergence_names_a_bad_gradient_of_a_finite_loss(fuse):
    with pytest.raises(DivergedError, match=rf"at step {fuse}, first in the gradient of network\.0\.bias;"):
        make_trainer(make_failing_experiment(fuse, backward=True)).train()


def test_divergence_keeps_the_ema_and_the_best_weights(tmp_path):
    """An epoch is 7 rounds: what was judged best after the first stays, though round 9 burns."""
    run = Run.create(tmp_path, "mined")
    trainer = Trainer(
        replace(make_failing_experiment(9), ema=0.9), Settings(seed=1), device=torch.device("cpu"), run=run
    )
    with pytest.raises(DivergedError) as error_info:
        trainer.train()
    assert error_info.value.run == run
    best_weights, state = run.load("model"), run.load_state()
    assert all(v.isfinite().all() for v in best_weights.values()) and state["state"]["step"] == 8
    reference = Trainer(
        replace(make_failing_experiment(100), ema=0.9, epochs=None, steps=8),
        Settings(seed=1),
        device=torch.device("cpu"),
    )
    reference.train()
    assert state["average"]["steps"] == 8
    torch.testing.assert_close(state["average"]["mean"], reference.ema.averages)


def test_divergence_keeps_the_last_finite_state(tmp_path):
    run = Run.create(tmp_path, "mined")
    trainer = Trainer(make_failing_experiment(9), Settings(seed=1), device=torch.device("cpu"), run=run)
    start = trainer.objective.state_dict()
    start = {k: v.clone() for k, v in start.items()}
    with pytest.raises(DivergedError, match=f"the state after step 8 is kept in {run.folder}"):
        trainer.train()
    saved_state = run.load_state()
    assert saved_state["state"]["step"] == 8
    # the same training with a fuse that never burns down
    reference = make_trainer(make_failing_experiment(10**9), seed=1)
    reference.objective.load_state_dict(start)
    for stored, rows in iterate_first_rounds(reference, 8):
        reference.train_round(stored, rows)
    saved_weights = torch.cat(
        [v.flatten() for k, v in saved_state["model"].items() if "passes" not in k and "likelihood" not in k]
    )
    assert torch.equal(saved_weights, flatten_weights(reference))


def iterate_first_rounds(t: Trainer, count: int):
    t.objective.train()
    t.streams.reset()
    t.save()
    done = 0
    while done < count:
        for item in t.iterate_epoch():
            yield item
            done += 1
            if done == count:
                return


def test_too_high_learning_rate_is_reported_in_one_line():
    with pytest.raises(DivergedError) as error_info:
        make_trainer(make_regressor(optimizer=partial(torch.optim.SGD, lr=1e6), epochs=50)).train()
    assert "\n" not in str(error_info.value) and "lower the learning rate" in str(error_info.value)


def test_finite_training_is_not_stopped():
    t = make_trainer(make_classifier(objective=Classify(make_network(5, 3), Categorical(3)), epochs=3))
    t.train()
    assert flatten_weights(t).isfinite().all()
