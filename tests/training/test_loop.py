"""The loop: what it learns, when it stops, and that what should not matter does not."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from didact.data.build import Examples, build_data
from didact.errors import UsageError
from didact.objectives.base import Objective, Player
from didact.objectives.distributions.classification import Categorical
from didact.objectives.supervised import Classify
from didact.optim.sam import SAM
from didact.optim.schedule import Cosine, OneCycle
from didact.run import Run
from didact.training import loop, precision
from didact.training.plan import TrainingPlan, count_batches, split_batches
from didact.training.seeding import derive_seed, epoch_permutation
from helpers.small_experiments import (
    flatten_weights,
    make_blobs,
    make_classifier,
    make_network,
    make_regressor,
    make_trainer,
)


def test_trainer_learns_better_than_chance():
    state = make_trainer(make_classifier(epochs=10)).train()
    assert state.validation["accuracy"] > 0.9  # three classes: chance is 0.33
    assert state.stop_reason == "budget"


def test_first_step_equals_a_step_by_hand():
    """One step by hand on the same batch gives the same weights."""
    experiment = make_regressor(epochs=None, steps=1)
    trainer = make_trainer(experiment, seed=3)
    reference = make_network(4, 1)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05)
    rows = epoch_permutation(len(experiment.data.train), seed=3, epoch=0)[:32]
    batch = experiment.data.train.batch(rows)
    target = (batch["y"] - experiment.data.target_mean) / experiment.data.target_std
    loss = nn.functional.mse_loss(reference(batch["x"])[:, 0], target)
    loss.backward()
    optimizer.step()
    trainer.train()
    torch.testing.assert_close(
        flatten_weights(trainer), torch.cat([p.detach().flatten() for p in reference.parameters()])
    )
    assert trainer.state.fingerprint["1"] == pytest.approx(loss.item(), rel=1e-6)


@pytest.mark.parametrize("pieces", [2, 3, 5])
def test_accumulated_gradients_equal_the_large_batch(pieces):
    """The last batch has 18 rows, which 5 pieces cannot share equally."""
    plain_trainer, accumulating_trainer = (
        make_trainer(make_regressor()),
        make_trainer(make_regressor(accumulate=pieces)),
    )
    plain_trainer.train(), accumulating_trainer.train()
    assert (flatten_weights(plain_trainer) - flatten_weights(accumulating_trainer)).abs().max() < 1e-6


def test_seed_decides_the_weights():
    first, second, third = (make_trainer(make_classifier(dropout=0.3), seed=seed) for seed in (1, 1, 2))
    for t in (first, second, third):
        t.train()
    assert torch.equal(flatten_weights(first), flatten_weights(second))
    assert not torch.equal(flatten_weights(first), flatten_weights(third))
    assert first.state.fingerprint == second.state.fingerprint


def test_derived_seeds_are_independent():
    assert (
        len(
            {
                derive_seed(0, "order"),
                derive_seed(0, "augmentation"),
                derive_seed(1, "order"),
                derive_seed(0, "order", 1),
            }
        )
        == 4
    )
    assert torch.equal(epoch_permutation(50, seed=0, epoch=2), epoch_permutation(50, seed=0, epoch=2))
    assert not torch.equal(epoch_permutation(50, seed=0, epoch=2), epoch_permutation(50, seed=0, epoch=3))


def test_patience_stops_and_keeps_the_best_weights():
    t = make_trainer(make_classifier(epochs=200, patience=3, optimizer=partial(torch.optim.SGD, lr=0.5)))
    state = t.train()
    assert state.stop_reason == "patience" and state.step < t.plan.total_rounds
    t.objective.load_state_dict(t.best_weights)
    from didact.training.evaluation import evaluate_split

    scores = t.objective.compute_metrics(
        evaluate_split(t.objective, t.data.validation, batch_size=7, precision=t.precision)
    )
    assert scores["accuracy"] == state.best_score


def test_patience_needs_min_delta_and_best_weights_any_gain():
    t = make_trainer(make_regressor(epochs=30, patience=2, min_delta=1.0, optimizer=partial(torch.optim.SGD, lr=1e-3)))
    state = t.train()
    assert state.stop_reason == "patience" and state.step == 3 * t.plan.rounds_per_epoch, (
        "the first is a gain without bound, the next two are small"
    )
    assert state.best_step > t.plan.rounds_per_epoch, "small gains are kept all the same"


@pytest.mark.parametrize(("step", "stopped", "evaluations"), [(0.0004, "budget", 12), (0.0001, "patience", 6)])
def test_small_gains_add_up_within_patience(monkeypatch, step, stopped, evaluations):
    """Of gains of 0.0004 three exceed min_delta = 0.001, within a patience of five; of gains of 0.0001 five do not."""
    experiment = make_regressor(epochs=12, patience=5, min_delta=0.001)
    losses = iter(1 - step * k for k in range(100))
    monkeypatch.setattr(
        experiment.objective, "compute_metrics", lambda rows: dict.fromkeys(("loss", "rmse"), next(losses))
    )
    state = (t := make_trainer(experiment)).train()
    assert (state.stop_reason, state.step // t.plan.rounds_per_epoch) == (
        stopped,
        evaluations,
    ) and state.best_step == state.step


def test_undefined_metric_falls_back_to_the_loss(monkeypatch):
    experiment = make_classifier(epochs=4)
    original_score = experiment.objective.compute_metrics
    monkeypatch.setattr(
        experiment.objective, "compute_metrics", lambda rows: original_score(rows) | {"accuracy": float("nan")}
    )
    t = make_trainer(experiment)
    state = t.train()
    assert state.best_step == state.step, "the loss falls with every epoch"


def test_steps_or_epochs_set_the_budget():
    assert make_trainer(make_classifier(epochs=3)).plan.total_rounds == 3 * 7  # 210 training rows in batches of 32
    assert make_trainer(make_classifier(epochs=None, steps=11)).train().step == 11


def test_single_last_row_joins_the_batch_before():
    assert [len(c) for c in split_batches(torch.arange(65), 32)] == [32, 33]
    assert [len(c) for c in split_batches(torch.arange(1), 32)] == [1]


def test_ema_weights_are_evaluated_and_kept():
    t = make_trainer(make_classifier(ema=0.9))
    t.train()
    final_weights = flatten_weights(t).clone()
    t.objective.load_state_dict(t.best_weights)
    assert t.ema is not None and not torch.equal(final_weights, flatten_weights(t))
    with t.ema.use_averaged_weights():
        torch.testing.assert_close(torch.cat([m.flatten() for m in t.ema.averages]), flatten_weights(t))


def test_ema_follows_its_recursion():
    from didact.training.ema import EMA

    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 1.0)
    average = EMA(layer, decay=0.5)
    nn.init.constant_(layer.weight, 3.0)
    average.update()  # d = min(0.5, 2/11): 2/11 * 1 + 9/11 * 3
    assert average.averages[0].item() == pytest.approx(2 / 11 * 1 + 9 / 11 * 3)


def test_schedule_changes_the_learning_rate():
    t = make_trainer(make_classifier(schedule=Cosine(), epochs=2))
    t.train()
    assert t.learning_rates()["model"] == pytest.approx(1e-2 * Cosine()(13, 14))
    t = make_trainer(make_classifier(schedule=OneCycle(), epochs=2))
    t.train()
    assert t.train_step.optimizers["model"].param_groups[0]["betas"][0] == pytest.approx(0.95)


def test_trainer_supports_sam():
    state = make_trainer(
        make_classifier(optimizer=partial(SAM, base=partial(torch.optim.SGD, lr=0.1, momentum=0.9), rho=0.05))
    ).train()
    assert state.validation["accuracy"] > 0.9


def test_bf16_without_lstm_support_is_refused(monkeypatch):
    checked_names = list[str]()
    monkeypatch.setattr(precision, "supports_lstm", lambda name: checked_names.append(name) or False)
    cpu = torch.device("cpu")
    with pytest.raises(UsageError, match="--precision bf16 is not supported by this CPU's LSTM"):
        precision.Precision("bf16", cpu, nn.Sequential(nn.LSTM(2, 2)))
    assert (
        precision.Precision("fp32", cpu, nn.LSTM(2, 2)).name == "fp32"
        and precision.Precision("bf16", cpu, nn.GRU(2, 2)).name == "bf16"
    )
    assert checked_names == ["bf16"], "where there is no LSTM, nobody asks"


def test_gradient_clipping_bounds_the_step():
    t = make_trainer(make_regressor(clip_norm=1e-3, optimizer=partial(torch.optim.SGD, lr=1.0), epochs=None, steps=1))
    before = flatten_weights(t).clone()
    t.train()
    assert (flatten_weights(t) - before).norm() == pytest.approx(1e-3, rel=1e-3)
    t = make_trainer(make_regressor(clip_value=1e-3, optimizer=partial(torch.optim.SGD, lr=1.0), epochs=None, steps=1))
    before = flatten_weights(t).clone()
    t.train()
    assert (flatten_weights(t) - before).abs().max() <= 1e-3 + 1e-7


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_learns(precision):
    t = make_trainer(make_classifier(epochs=8), precision=precision)
    assert t.train().validation["accuracy"] > 0.9
    assert all(p.dtype == torch.float32 for p in t.objective.parameters())


class SaddleObjective(Objective):
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

    def evaluate_batch(self, batch):
        return {"loss": self.value().abs().expand(len(batch["x"]))}

    def players(self):
        return (Player("up", [self.y], steps_per_round=3), Player("down", [self.x]))


def test_two_player_objective_reaches_its_saddle():
    t = make_trainer(
        make_classifier(
            objective=SaddleObjective(),
            optimizer={n: partial(torch.optim.SGD, lr=0.1) for n in ("up", "down")},
            epochs=20,
        )
    )
    t.train()
    game = t.objective
    assert abs(game.x.item()) < 1e-2 and abs(game.y.item()) < 1e-2
    assert [s[0] for s in game.seen[:4]] == ["up", "up", "up", "down"]
    # gradients reach the player alone
    assert all(x == (name == "down") and y == (name == "up") for name, _, x, y in game.seen)
    # a fresh batch a turn
    assert len({row for name, row, *_ in game.seen[:3]}) == 3 and game.seen[3][1] == game.seen[0][1]
    assert t.plan.rounds_per_epoch == 7 // 3


def test_player_losses_are_means_over_its_steps():
    t = make_trainer(
        make_classifier(
            objective=SaddleObjective(),
            optimizer={n: partial(torch.optim.SGD, lr=0.0) for n in ("up", "down")},
            epochs=1,
        )
    )
    t.streams.reset()
    for stored, rows in t.iterate_epoch():
        t.train_step(stored, rows)
    # x y + x²/2 - y²/2 at (1, 1)
    assert t.train_step.read_losses() == pytest.approx({"up/loss": -1.0, "down/loss": 1.0})


def test_batch_larger_than_the_data_is_the_data():
    t = make_trainer(make_classifier(batch_size=10_000, epochs=2))
    assert t.plan.rounds_per_epoch == 1 and t.train().step == 2


def test_batch_norm_survives_a_last_batch_of_one():
    data = make_blobs(rows=300)
    n = len(data.train)
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    t = make_trainer(make_classifier(data, objective=Classify(net, Categorical(3)), batch_size=n - 1, epochs=1))
    assert t.train().step == 1


def test_number_of_tensors_stays_constant_over_epochs():
    import gc

    gc.freeze()  # what was there before is not counted
    t = make_trainer(make_classifier(epochs=30))
    counts = []
    t.on_event = lambda event, facts: (
        counts.append(sum(issubclass(type(o), Tensor) for o in gc.get_objects())) if event == "evaluate" else None
    )
    t.train()
    gc.unfreeze()
    assert counts[0] > 0 and max(counts[5:]) <= max(counts[:5]) + 5


def test_plan_follows_the_budget():
    plan = TrainingPlan.from_experiment(make_classifier(epochs=4, batch_size=100))
    assert (plan.num_examples, plan.rounds_per_epoch, plan.total_rounds, plan.evaluate_every) == (210, 3, 12, 3)
    rounds = plan.epoch_rounds(0, 0)
    assert torch.cat([c for r in rounds for c in r]).sort().values.tolist() == list(range(210))


def test_log_every_changes_only_the_log(tmp_path):
    """21 batches of ten rows an epoch: by default a line is the mean of two, with --log-every 1 each has its own."""
    lines, weights_by_interval = {}, {}
    for interval in (None, 1, 4):
        t = make_trainer(make_classifier(epochs=1, batch_size=10), log_every=interval)
        t.run = Run.create(tmp_path / str(interval), "mlp")
        t.train()
        lines[interval] = [(row["step"], row["train"]["loss"]) for row in t.run.metrics if "train" in row]
        weights_by_interval[interval] = flatten_weights(t)
    assert [step for step, _ in lines[1]] == list(range(1, 22)) and [step for step, _ in lines[4]] == [
        4,
        8,
        12,
        16,
        20,
        21,
    ]
    losses = [loss for _, loss in lines[1]]
    assert lines[None] == [(s, pytest.approx((losses[s - 2] + losses[s - 1]) / 2)) for s in range(2, 21, 2)] + [
        (21, pytest.approx(losses[20]))
    ]
    assert torch.equal(weights_by_interval[None], weights_by_interval[1]) and torch.equal(
        weights_by_interval[None], weights_by_interval[4]
    )


def test_trainer_learns_multilabel_targets():
    x = torch.randn(200, 6)
    y = (x[:, :3] > 0).float()
    data = build_data(Examples("several", "table", {"x": x, "y": y}, task="multilabel", class_names=["a", "b", "c"]))
    from didact.objectives.supervised import likelihood_for, make_supervised

    likelihood = likelihood_for(data)
    t = make_trainer(
        make_classifier(data, objective=make_supervised(make_network(6, likelihood.num_outputs), likelihood), epochs=20)
    )
    assert t.train().validation["accuracy"] > 0.85


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own compiler
def test_compiled_loss_equals_eager_loss():
    eager_trainer, compiled_trainer = (
        make_trainer(make_regressor(epochs=2)),
        make_trainer(make_regressor(epochs=2), compile=True),
    )
    eager_trainer.train(), compiled_trainer.train()
    assert (flatten_weights(eager_trainer) - flatten_weights(compiled_trainer)).abs().max() < 1e-5


@given(st.integers(1, 300), st.integers(1, 70), st.integers(2, 4), st.integers(1, 5))
def test_rounds_cut_from_the_order_are_the_batches_of_the_epoch(n, batch_size, min_batch_size, batches_per_round):
    order = epoch_permutation(n, seed=1, epoch=2)
    batches = split_batches(order, batch_size, min_batch_size)
    assert count_batches(n, batch_size, min_batch_size) == len(batches)
    num_rounds = max(1, len(batches) // batches_per_round)
    plan = TrainingPlan(n, batch_size, batches_per_round, num_rounds, 10, 5, 1, min_batch_size)
    if len(batches) < batches_per_round:
        batches = (batches * batches_per_round)[:batches_per_round]
    rounds = plan.epoch_rounds(1, 2)
    assert [len(chunks) for chunks in rounds] == [batches_per_round] * num_rounds
    for i, chunks in enumerate(rounds):
        for chunk, expected in zip(chunks, batches[i * batches_per_round :], strict=False):
            assert torch.equal(chunk, expected)


def test_an_epoch_in_parts_is_the_same_epoch(monkeypatch):
    whole, parts = make_trainer(make_classifier(epochs=3)), make_trainer(make_classifier(epochs=3))
    whole.train()
    monkeypatch.setattr(loop, "_ROUNDS_AT_ONCE", 2)
    parts.train()
    assert torch.equal(flatten_weights(whole), flatten_weights(parts))
