"""Consistency distillation: a student of a diffusion model that samples in one or two steps."""

from dataclasses import replace
from typing import Annotated

from didact.data.core import Data
from didact.errors import UsageError
from didact.objectives.generative.consistency import ConsistencyObjective
from didact.objectives.generative.diffusion import DiffusionObjective
from didact.options import Range
from didact.recipes import _hyperparameters as a
from didact.recipes._source_run import SourceRunOption, resolve_source_run
from didact.recipes.diffusion import RECIPE_METADATA, SamplingSteps, make_experiment
from didact.registry import recipe
from didact.training.experiment import Experiment, InitContext

_DEFAULT_TEACHER = "diffusion noise_schedule=linear prediction_type=velocity schedule=constant"
_TARGET_STEPS = 600  # on a small dataset


@recipe(
    **RECIPE_METADATA,
    abilities=("sample", "walk"),
    sources=("Gaba 8.10", "Gaba 10.10"),
    grid={"num_intervals": (10, 25, 50)},
)
def consistency(
    data: Data,
    *,
    from_: SourceRunOption = None,
    teacher: Annotated[
        str | None,
        f"recipe and arguments of the teacher: read from --from, or trained first ({_DEFAULT_TEACHER} if not given)",
    ] = None,
    num_intervals: Annotated[
        int, Range(2), "number of intervals of the teacher's timesteps between which consistency is enforced"
    ] = 25,
    sampling_steps: SamplingSteps = 1,
    ema_decay: Annotated[float, Range(0, 1), "EMA decay of the target network"] = 0.95,
    lr: a.OptionalLearningRate = None,
    schedule: a.Schedule = "cosine",
    clip_norm: a.ClipNorm = 1.0,
    epochs: a.OptionalEpochs = None,
    batch_size: a.OptionalBatchSize = None,
) -> Experiment:
    """Consistency distillation: a diffusion model that samples in one step.

    min E ‖f(x_t, t) − f⁻(x̂_s, s)‖², x̂_s the teacher's step from x_t, f⁻ an average of f; f(x, 0) = x. Measured on
    digits, one seed, Fréchet distance in the features of `cnn` (1,000 samples, 269 test images): teacher in 25 steps
    18, in one 278; student in one 27.
    """
    source_run = resolve_source_run(
        from_, teacher if from_ or teacher else _DEFAULT_TEACHER, data, allowed_recipes=("diffusion",)
    )
    teacher_objective = source_run.build_experiment(data).objective
    assert isinstance(teacher_objective, DiffusionObjective)
    timesteps = teacher_objective.noise_schedule.timesteps
    if num_intervals > timesteps:
        raise UsageError(
            f"--num-intervals must be at most {timesteps}, the timesteps of the teacher, got {num_intervals}"
        )
    objective = ConsistencyObjective(
        teacher_objective, num_intervals=num_intervals, ema_decay=ema_decay, sampling_steps=sampling_steps
    )

    def initialize_weights(context: InitContext) -> tuple[str, ...]:
        note = source_run.train_or_load(teacher_objective, data, context)  # the student starts as the teacher
        for network in (objective.teacher, objective.target):
            network.load_state_dict(teacher_objective.network.state_dict())
        return (note,)

    experiment = make_experiment(
        data,
        objective,
        lr=lr,
        schedule=schedule,
        ema=None,
        clip_norm=clip_norm,
        epochs=epochs,
        batch_size=batch_size,
        target_steps=_TARGET_STEPS,
    )
    return replace(
        experiment,
        initialize_weights=initialize_weights,
        resolved_arguments={"from_": source_run.location, "teacher": source_run.description},
    )
