"""The budget of a training in rounds: how many, how often to evaluate and to log, and which examples each has."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from didact.errors import UsageError
from didact.training.experiment import Experiment
from didact.training.seeding import epoch_permutation


@dataclass(frozen=True)
class TrainingPlan:
    """The budget in rounds. A round is one batch, or as many as the player with most steps per round needs."""

    num_examples: int
    batch_size: int
    batches_per_round: int
    rounds_per_epoch: int            # rounds of an epoch
    total_rounds: int
    evaluate_every: int
    log_every: int
    min_batch_size: int = 2  # smallest batch in which each process has an example

    @classmethod
    def from_experiment(
        cls, experiment: Experiment, processes: int = 1, *, log_every: int | None = None
    ) -> "TrainingPlan":
        num_examples, batches_per_round = (
            len(experiment.data.train),
            max(p.steps_per_round for p in experiment.objective.players()),
        )
        min_batch_size = max(2, processes)
        if min(num_examples, experiment.batch_size) < processes:
            raise UsageError(
                f"{processes} processes share batches of {min(num_examples, experiment.batch_size)} examples; raise "
                "--batch-size, or start fewer"
            )
        rounds_per_epoch = max(
            1,
            count_batches(num_examples, experiment.batch_size, min_batch_size) // batches_per_round,
        )
        assert (experiment.steps is None) != (experiment.epochs is None), "an experiment has either epochs or steps"
        total_rounds = experiment.steps or rounds_per_epoch * (experiment.epochs or 0)
        evaluate_every = experiment.evaluate_every or (
            rounds_per_epoch if experiment.steps is None else max(1, total_rounds // 10)
        )
        return cls(
            num_examples,
            experiment.batch_size,
            batches_per_round,
            rounds_per_epoch,
            total_rounds,
            evaluate_every,
            log_every or max(1, min(evaluate_every, rounds_per_epoch) // 10),
            min_batch_size,
        )

    def evaluations_after(self, step: int) -> int:
        """How many evaluations follow: one every `evaluate_every` rounds, and one at the end."""
        return (
            -(-self.total_rounds // self.evaluate_every) - step // self.evaluate_every
            if step < self.total_rounds
            else 0
        )

    def epoch_rounds(self, seed: int, epoch: int) -> "EpochRounds":
        """Indices of the examples of every batch of an epoch, by round."""
        order = epoch_permutation(self.num_examples, seed=seed, epoch=epoch)
        num_batches = count_batches(self.num_examples, self.batch_size, self.min_batch_size)
        return EpochRounds(order, self.batch_size, num_batches, self.batches_per_round, self.rounds_per_epoch)


@dataclass(frozen=True)
class EpochRounds:
    """The rounds of an epoch; each is cut from the order when it is asked for: of a long text there are millions."""

    order: Tensor
    batch_size: int
    num_batches: int
    batches_per_round: int
    num_rounds: int

    def __len__(self) -> int:
        return self.num_rounds

    def __getitem__(self, index: int) -> list[Tensor]:
        """The batches of a round; the first ones again where an epoch has fewer than a round needs."""
        if index >= self.num_rounds:
            raise IndexError(index)
        numbers = range(index * self.batches_per_round, (index + 1) * self.batches_per_round)
        return [self._batch(number % self.num_batches) for number in numbers]

    def _batch(self, number: int) -> Tensor:
        start = number * self.batch_size
        return self.order[start:] if number == self.num_batches - 1 else self.order[start : start + self.batch_size]

    def __iter__(self) -> Iterator[list[Tensor]]:
        return (self[index] for index in range(self.num_rounds))


def count_batches(num_examples: int, batch_size: int, min_batch_size: int = 2) -> int:
    """How many batches `split_batches` makes."""
    num_batches = -(-num_examples // batch_size)
    last = num_examples - (num_batches - 1) * batch_size
    return num_batches - 1 if num_batches > 1 and last < min_batch_size else num_batches


def split_batches(rows: Tensor, batch_size: int, min_batch_size: int = 2) -> list[Tensor]:
    """Batches in order. A last batch of one example, which batch norm cannot use, joins the one before.

    So does a last batch with fewer examples than processes.
    """
    chunks = list(rows.split(batch_size))
    if len(chunks) > 1 and len(chunks[-1]) < min_batch_size:
        chunks[-2:] = [torch.cat(chunks[-2:])]
    return chunks
