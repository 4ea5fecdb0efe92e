"""A number that is not finite stops the run, is named, and never reaches the weights that are kept."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from making import classify, network, regress, training, weights
from torch import Tensor, nn

from didact.objectives.likelihoods import Categorical
from didact.objectives.supervised import Classify
from didact.run import Run
from didact.train.experiment import Settings
from didact.train.interrupt import DivergedError
from didact.train.loop import Training


class Mine(nn.Module):
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
        return x + 0 * (x - x.detach()).abs().sqrt()  # the value is x; the gradient of the root at 0 is infinite times zero


def mined(fuse: int, **keywords: bool):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), Mine(fuse, **keywords), nn.Linear(16, 3))
    return classify(objective=Classify(net, Categorical(3)), epochs=10)


@pytest.mark.parametrize("fuse", [1, 9, 30])
def test_step_and_layer_are_named(fuse):
    with pytest.raises(DivergedError, match=rf"at step {fuse}, first in the output of network\.2;"):
        training(mined(fuse)).train()


@pytest.mark.parametrize("fuse", [2, 70])  # 70 is the very last step: no later loss would show it
def test_a_bad_gradient_is_named_though_the_loss_is_good(fuse):
    with pytest.raises(DivergedError, match=rf"at step {fuse}, first in the gradient of network\.0\.bias;"):
        training(mined(fuse, backward=True)).train()


def test_the_average_and_the_best_weights_are_kept(tmp_path):
    """An epoch is 7 rounds: what was judged best after the first stays, though round 9 burns."""
    run = Run.create(tmp_path, "mined")
    broken = Training(replace(mined(9), ema=0.9), Settings(seed=1), device=torch.device("cpu"), run=run)
    with pytest.raises(DivergedError) as told:
        broken.train()
    assert told.value.run == run
    kept, state = run.load("model"), run.load_state()
    assert all(v.isfinite().all() for v in kept.values()) and state["state"]["step"] == 8
    good = Training(replace(mined(100), ema=0.9, epochs=None, steps=8), Settings(seed=1), device=torch.device("cpu"))
    good.train()
    assert state["average"]["steps"] == 8
    torch.testing.assert_close(state["average"]["mean"], good.average.mean)


def test_the_last_good_state_is_kept(tmp_path):
    run = Run.create(tmp_path, "mined")
    broken = Training(mined(9), Settings(seed=1), device=torch.device("cpu"), run=run)
    start = broken.objective.state_dict()
    start = {k: v.clone() for k, v in start.items()}
    with pytest.raises(DivergedError, match=f"the state after step 8 is kept in {run.folder}"):
        broken.train()
    kept = run.load_state()
    assert kept["state"]["step"] == 8
    good = training(mined(10**9), seed=1)  # the same training with a fuse that never burns down
    good.objective.load_state_dict(start)
    for stored, rows in first_rounds(good, 8):
        good.advance(stored, rows)
    theirs = torch.cat([v.flatten() for k, v in kept["model"].items() if "passes" not in k and "likelihood" not in k])
    assert torch.equal(theirs, weights(good))


def first_rounds(t: Training, count: int):
    t.objective.train()
    t.streams.begin()
    t.save()
    done = 0
    while done < count:
        for item in t.epoch():
            yield item
            done += 1
            if done == count:
                return


def test_a_rate_far_too_high_is_told_in_one_line():
    with pytest.raises(DivergedError) as raised:
        training(regress(optimizer=partial(torch.optim.SGD, lr=1e6), epochs=50)).train()
    assert "\n" not in str(raised.value) and "lower the learning rate" in str(raised.value)


def test_networks_that_are_fine_are_left_alone():
    t = training(classify(objective=Classify(network(5, 3), Categorical(3)), epochs=3))
    t.train()
    assert weights(t).isfinite().all()
