"""The loop: what it learns, when it stops, and that what should not matter does not."""

from functools import partial

import pytest
import torch
from making import blobs, classify, network, regress, training, weights
from torch import Tensor, nn

from didact.data.assemble import assemble
from didact.errors import UsageError
from didact.objectives.core import Objective, Player
from didact.objectives.likelihoods import Categorical
from didact.objectives.supervised import Classify
from didact.optim.sam import SAM
from didact.optim.schedule import cosine, one_cycle
from didact.run import Run
from didact.train import precision
from didact.train.loop import Plan, cut
from didact.train.randomness import derive, order


def test_it_learns_what_chance_cannot():
    state = training(classify(epochs=10)).train()
    assert state.validation["accuracy"] > 0.9  # three classes: chance is 0.33
    assert state.stopped == "budget"


def test_the_first_step_is_the_optimizers_own():
    """One step by hand on the same batch gives the same weights."""
    experiment = regress(epochs=None, steps=1)
    ours = training(experiment, seed=3)
    reference = network(4, 1)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05)
    rows = order(len(experiment.data.train), seed=3, epoch=0)[:32]
    batch = experiment.data.train.batch(rows)
    target = (batch["y"] - experiment.data.target_mean) / experiment.data.target_std
    loss = nn.functional.mse_loss(reference(batch["x"])[:, 0], target)
    loss.backward()
    optimizer.step()
    ours.train()
    torch.testing.assert_close(weights(ours), torch.cat([p.detach().flatten() for p in reference.parameters()]))
    assert ours.state.fingerprint["1"] == pytest.approx(loss.item(), rel=1e-6)


@pytest.mark.parametrize("pieces", [2, 3, 5])
def test_accumulated_gradients_equal_the_large_batch(pieces):
    """The last batch has 18 rows, which 5 pieces cannot share equally."""
    plain, accumulated = training(regress()), training(regress(accumulate=pieces))
    plain.train(), accumulated.train()
    assert (weights(plain) - weights(accumulated)).abs().max() < 1e-6


def test_same_seed_same_weights_and_another_seed_others():
    first, second, third = (training(classify(dropout=0.3), seed=seed) for seed in (1, 1, 2))
    for t in (first, second, third):
        t.train()
    assert torch.equal(weights(first), weights(second))
    assert not torch.equal(weights(first), weights(third))
    assert first.state.fingerprint == second.state.fingerprint


def test_what_one_purpose_draws_changes_nothing_for_another():
    assert len({derive(0, "order"), derive(0, "augmentation"), derive(1, "order"), derive(0, "order", 1)}) == 4
    assert torch.equal(order(50, seed=0, epoch=2), order(50, seed=0, epoch=2))
    assert not torch.equal(order(50, seed=0, epoch=2), order(50, seed=0, epoch=3))


def test_patience_stops_and_the_best_weights_are_kept():
    t = training(classify(epochs=200, patience=3, optimizer=partial(torch.optim.SGD, lr=0.5)))
    state = t.train()
    assert state.stopped == "patience" and state.step < t.plan.total
    t.objective.load_state_dict(t.best)
    from didact.train.evaluation import judge

    again = t.objective.score(judge(t.objective, t.data.validation, batch=7, precision=t.precision))
    assert again["accuracy"] == state.best


def test_patience_asks_for_more_than_min_delta_and_keeps_any_gain():
    t = training(regress(epochs=30, patience=2, min_delta=1.0, optimizer=partial(torch.optim.SGD, lr=1e-3)))
    state = t.train()
    assert state.stopped == "patience" and state.step == 3 * t.plan.epoch, "the first is a gain without bound, the next two are small"
    assert state.best_step > t.plan.epoch, "small gains are kept all the same"


@pytest.mark.parametrize(("step", "stopped", "evaluations"), [(0.0004, "budget", 12), (0.0001, "patience", 6)])
def test_small_gains_add_up_before_patience_ends(monkeypatch, step, stopped, evaluations):
    """Of gains of 0.0004 three exceed min_delta = 0.001, within a patience of five; of gains of 0.0001 five do not."""
    experiment = regress(epochs=12, patience=5, min_delta=0.001)
    losses = iter(1 - step * k for k in range(100))
    monkeypatch.setattr(experiment.objective, "score", lambda rows: dict.fromkeys(("loss", "rmse"), next(losses)))
    state = (t := training(experiment)).train()
    assert (state.stopped, state.step // t.plan.epoch) == (stopped, evaluations) and state.best_step == state.step


def test_a_metric_that_is_not_defined_leaves_the_choice_to_the_loss(monkeypatch):
    experiment = classify(epochs=4)
    scored = experiment.objective.score
    monkeypatch.setattr(experiment.objective, "score", lambda rows: scored(rows) | {"accuracy": float("nan")})
    t = training(experiment)
    state = t.train()
    assert state.best_step == state.step, "the loss falls with every epoch"


def test_steps_or_epochs_are_the_budget():
    assert training(classify(epochs=3)).plan.total == 3 * 7  # 210 training rows in batches of 32
    assert training(classify(epochs=None, steps=11)).train().step == 11


def test_a_single_last_row_joins_the_batch_before():
    assert [len(c) for c in cut(torch.arange(65), 32)] == [32, 33]
    assert [len(c) for c in cut(torch.arange(1), 32)] == [1]


def test_averaged_weights_are_judged_and_kept():
    t = training(classify(ema=0.9))
    t.train()
    live = weights(t).clone()
    t.objective.load_state_dict(t.best)
    assert t.average is not None and not torch.equal(live, weights(t))
    with t.average.in_place():
        torch.testing.assert_close(torch.cat([m.flatten() for m in t.average.mean]), weights(t))


def test_average_follows_its_recursion():
    from didact.train.ema import Average

    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 1.0)
    average = Average(layer, decay=0.5)
    nn.init.constant_(layer.weight, 3.0)
    average.update()  # d = min(0.5, 2/11): 2/11 * 1 + 9/11 * 3
    assert average.mean[0].item() == pytest.approx(2 / 11 * 1 + 9 / 11 * 3)


def test_schedules_move_the_rate():
    t = training(classify(schedule=cosine(), epochs=2))
    t.train()
    assert t.rates()["model"] == pytest.approx(1e-2 * cosine()(13, 14))
    t = training(classify(schedule=one_cycle(), epochs=2))
    t.train()
    assert t.step.optimizers["model"].param_groups[0]["betas"][0] == pytest.approx(0.95)


def test_an_optimizer_may_ask_for_a_second_gradient():
    state = training(classify(optimizer=partial(SAM, base=partial(torch.optim.SGD, lr=0.1, momentum=0.9), rho=0.05))).train()
    assert state.validation["accuracy"] > 0.9


def test_half_precision_without_an_lstm_is_refused(monkeypatch):
    asked = list[str]()
    monkeypatch.setattr(precision, "has_lstm", lambda name: asked.append(name) or False)
    cpu = torch.device("cpu")
    with pytest.raises(UsageError, match="--precision bf16 is not supported by this CPU's LSTM"):
        precision.Precision("bf16", cpu, nn.Sequential(nn.LSTM(2, 2)))
    assert precision.Precision("fp32", cpu, nn.LSTM(2, 2)).name == "fp32" and precision.Precision("bf16", cpu, nn.GRU(2, 2)).name == "bf16"
    assert asked == ["bf16"], "where there is no LSTM, nobody asks"


def test_clipping_bounds_the_gradient():
    t = training(regress(clip_norm=1e-3, optimizer=partial(torch.optim.SGD, lr=1.0), epochs=None, steps=1))
    before = weights(t).clone()
    t.train()
    assert (weights(t) - before).norm() == pytest.approx(1e-3, rel=1e-3)
    t = training(regress(clip_value=1e-3, optimizer=partial(torch.optim.SGD, lr=1.0), epochs=None, steps=1))
    before = weights(t).clone()
    t.train()
    assert (weights(t) - before).abs().max() <= 1e-3 + 1e-7


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns_too(precision):
    t = training(classify(epochs=8), precision=precision)
    assert t.train().validation["accuracy"] > 0.9
    assert all(p.dtype == torch.float32 for p in t.objective.parameters())


class Game(Objective):
    """Two players on one saddle: x minimises x·y + x²/2 - y²/2, y maximises it; the solution is (0, 0)."""

    def __init__(self):
        super().__init__()
        self.x, self.y = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
        self.seen: list[tuple[str, int, bool, bool]] = []

    def value(self) -> Tensor:
        return (self.x * self.y + self.x**2 / 2 - self.y**2 / 2).sum()

    def loss(self, batch, player="model"):
        self.seen.append((player, int(batch["row"][0]), self.x.requires_grad, self.y.requires_grad))
        return {"loss": self.value() if player == "down" else -self.value()}

    def judge(self, batch):
        return {"loss": self.value().abs().expand(len(batch["x"]))}

    def players(self):
        return (Player("up", [self.y], turns=3), Player("down", [self.x]))


def test_a_game_needs_no_loop_of_its_own():
    t = training(classify(objective=Game(), optimizer={n: partial(torch.optim.SGD, lr=0.1) for n in ("up", "down")}, epochs=20))
    t.train()
    game = t.objective
    assert abs(game.x.item()) < 1e-2 and abs(game.y.item()) < 1e-2
    assert [s[0] for s in game.seen[:4]] == ["up", "up", "up", "down"]
    assert all(x == (name == "down") and y == (name == "up") for name, _, x, y in game.seen)  # gradients reach the player alone
    assert len({row for name, row, *_ in game.seen[:3]}) == 3 and game.seen[3][1] == game.seen[0][1]  # a fresh batch a turn
    assert t.plan.epoch == 7 // 3


def test_losses_of_a_player_are_means_over_its_turns():
    t = training(classify(objective=Game(), optimizer={n: partial(torch.optim.SGD, lr=0.0) for n in ("up", "down")}, epochs=1))
    t.streams.begin()
    for stored, rows in t.epoch():
        t.step(stored, rows)
    assert t.step.read_sums() == pytest.approx({"up/loss": -1.0, "down/loss": 1.0})  # x y + x²/2 - y²/2 at (1, 1)


def test_a_batch_larger_than_the_data_is_the_data():
    t = training(classify(batch=10_000, epochs=2))
    assert t.plan.epoch == 1 and t.train().step == 2


def test_batch_norm_survives_a_last_batch_of_one():
    data = blobs(rows=300)
    n = len(data.train)
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    t = training(classify(data, objective=Classify(net, Categorical(3)), batch=n - 1, epochs=1))
    assert t.train().step == 1


def test_memory_stays_flat_over_epochs():
    import gc

    gc.freeze()  # what was there before is not counted
    t = training(classify(epochs=30))
    counts = []
    t.tell = lambda event, facts: counts.append(sum(issubclass(type(o), Tensor) for o in gc.get_objects())) if event == "evaluate" else None
    t.train()
    gc.unfreeze()
    assert counts[0] > 0 and max(counts[5:]) <= max(counts[:5]) + 5


def test_plan_reads_the_budget():
    plan = Plan.of(classify(epochs=4, batch=100))
    assert (plan.rows, plan.epoch, plan.total, plan.evaluate_every) == (210, 3, 12, 3)
    rounds = plan.rounds(0, 0)
    assert torch.cat([c for r in rounds for c in r]).sort().values.tolist() == list(range(210))


def test_every_step_may_be_logged_and_nothing_else_changes(tmp_path):
    """21 batches of ten rows an epoch: by default a line is the mean of two, with --log-every 1 each has its own."""
    lines, found = {}, {}
    for every in (None, 1, 4):
        t = training(classify(epochs=1, batch=10), log_every=every)
        t.run = Run.create(tmp_path / str(every), "mlp")
        t.train()
        lines[every] = [(row["step"], row["train"]["loss"]) for row in t.run.metrics if "train" in row]
        found[every] = weights(t)
    assert [step for step, _ in lines[1]] == list(range(1, 22)) and [step for step, _ in lines[4]] == [4, 8, 12, 16, 20, 21]
    each = [loss for _, loss in lines[1]]
    assert lines[None] == [(s, pytest.approx((each[s - 2] + each[s - 1]) / 2)) for s in range(2, 21, 2)] + [(21, pytest.approx(each[20]))]
    assert torch.equal(found[None], found[1]) and torch.equal(found[None], found[4])


def test_multilabel_targets_train_too():
    x = torch.randn(200, 6)
    y = (x[:, :3] > 0).float()
    data = assemble("several", "table", {"x": x, "y": y}, task="multilabel", labels=["a", "b", "c"])
    from didact.objectives.supervised import likelihood_of, supervised

    likelihood = likelihood_of(data)
    t = training(classify(data, objective=supervised(network(6, likelihood.outputs), likelihood), epochs=20))
    assert t.train().validation["accuracy"] > 0.85


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own compiler
def test_a_compiled_loss_is_the_loss():
    plain, compiled = training(regress(epochs=2)), training(regress(epochs=2), compile=True)
    plain.train(), compiled.train()
    assert (weights(plain) - weights(compiled)).abs().max() < 1e-5
