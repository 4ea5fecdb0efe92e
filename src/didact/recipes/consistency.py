"""A diffusion model's many steps, taught to a student that takes one or two."""

from dataclasses import replace
from typing import Annotated

from didact.data.core import Data
from didact.errors import UsageError
from didact.objectives.consistency import Consistency
from didact.objectives.diffusion import Diffusion
from didact.options import Range
from didact.recipes import arguments as a
from didact.recipes.diffusion import COMMON, Steps, learning
from didact.recipes.origin import From, origin
from didact.registry import recipe
from didact.train.experiment import Experiment, Start

TEACHER = "diffusion noise=linear predict=velocity schedule=constant"
UPDATES = 600  # on a small set


@recipe(**COMMON, abilities=("sample", "walk"), sources=("Gaba 8.10", "Gaba 10.10"), grid={"intervals": (10, 25, 50)})
def consistency(
    data: Data, *,
    from_: From = None,
    teacher: Annotated[str | None, f"its recipe and arguments: read from --from, or trained first ({TEACHER} if not given)"] = None,
    intervals: Annotated[int, Range(2), "steps of the teacher, from noise to image, of which each lesson is one"] = 25,
    sampling_steps: Steps = 1,
    decay: Annotated[float, Range(0, 1), "of the average of the student that sets its own aim"] = 0.95,
    lr: a.OptionalRate = None, schedule: a.ScheduleName = "cosine", clip_norm: a.Clip = 1.0,
    epochs: a.OptionalEpochs = None, batch: a.OptionalBatch = None,
) -> Experiment:
    """Consistency distillation: a student that reaches in one step where its teacher, a diffusion, comes in many.

    min E ‖f(x_t, t) − f⁻(x̂_s, s)‖², x̂_s the teacher's step from x_t, f⁻ an average of f; f(x, 0) = x.
    Measured on digits, one seed, Fréchet distance in the features of `cnn` (1,000 drawn, 269 test images): teacher in 25 steps 18, in one
    278; student in one 27.
    """
    of = origin(from_, teacher if from_ or teacher else TEACHER, data, known=("diffusion",))
    taught = of.experiment(data).objective
    assert isinstance(taught, Diffusion)
    if intervals > taught.noising.T:
        raise UsageError(f"--intervals are steps of the teacher, who has {taught.noising.T}, got {intervals}")
    objective = Consistency(taught, intervals=intervals, decay=decay, steps=sampling_steps)

    def begin(start: Start) -> tuple[str, ...]:
        told = of.bring(taught, data, start)               # its network is the student's
        for network in (objective.teacher, objective.target):
            network.load_state_dict(taught.network.state_dict())
        return (told,)

    made = learning(
        data, objective, lr=lr, schedule=schedule, ema=None, clip_norm=clip_norm, epochs=epochs, batch=batch, updates=UPDATES
    )
    return replace(made, begin=begin, settled={"from_": of.where, "teacher": of.words})
