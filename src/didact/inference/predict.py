"""Predictions of a trained model, by whatever its objective is able to do."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from didact import files
from didact.data.core import Batch, Data, Given, KnowsForecastDates, TensorSplit, describe_unseen_inputs
from didact.data.images.render import draw_boxes, encode_png, overlay_mask, resize_mask
from didact.data.text.masked_lm import MASK_TOKEN, MaskedTextEncoder
from didact.data.text.parallel_texts import PairEncoder
from didact.errors import UsageError
from didact.layers.dropout import has_dropout
from didact.layers.nms import MIN_SHOWN_SCORE, confident_detections
from didact.objectives.abilities import (
    ABILITIES,
    CanDetect,
    CanForecast,
    CanReconstruct,
    CanSampleTargets,
    CanTranslate,
    MeanAndStd,
    abilities,
)
from didact.objectives.base import Objective
from didact.objectives.distributions.regression import Regression
from didact.objectives.mc_dropout import mc_dropout
from didact.run import Run
from didact.training.restore import load_model

_TOP_CLASSES = 3               # the likeliest classes, which a prediction names
_MAX_INPUT_ELEMENTS = 2**22    # elements of the inputs that are predicted together

Prediction = dict[str, Any]


@dataclass(frozen=True)
class _PredictOptions:
    """MC-dropout passes, samples from the predictive distribution, beam width and minimum confidence of a box."""

    mc_passes: int = 0
    num_samples: int = 0
    num_beams: int = 1
    min_score: float = MIN_SHOWN_SCORE


def predict(
    run: Run | Path | str, inputs: Sequence[Given] | Given, *,
    mc_passes: int = 0, num_samples: int = 0, num_beams: int = 1, min_score: float | None = None,
    out_dir: Path | str | None = None,
    warn: Callable[[str], None] = lambda text: None,
) -> list[Prediction]:
    """Predict each input: files, rows or texts, read as the training data were.

    A Path is a file. A str is an image's file or a CSV file where the run reads such, and a text where it reads texts.
    `mc_passes` forward passes with dropout on give a mean and a standard deviation (MC dropout). `num_samples` samples
    from p(y | x) are added; for numbers, the standard deviation is that of the validation residuals where the model
    predicts none. `num_beams` is the beam width of a translation. Boxes below `min_score` are left out. Masks, boxes
    and restored images are tensors, or PNG files in `out_dir`. `warn` is called about tokens that were not in the
    training data.
    """
    objective, data = load_model(run if isinstance(run, Run) else Run.open(run))
    inputs = [inputs] if isinstance(inputs, str | Path) else inputs
    if invalid := [value for value in inputs if not isinstance(value, str | Path)]:
        raise UsageError(f"inputs are files, texts, or rows written a=1,b=2, got {type(invalid[0]).__name__}")
    if data.encoder is None:
        raise UsageError(f"the run was trained on {data.name!r}, whose inputs cannot be read from files")
    if mc_passes and not any(map(has_dropout, objective.modules())):
        raise UsageError(
            f"--mc-passes {mc_passes} is for networks with dropout, and this run's network has none; train with "
            "--dropout"
        )
    if num_beams != 1 and not isinstance(objective, CanTranslate):
        raise UsageError(
            f"--num-beams {num_beams} is for translations, but this run's model does not translate; leave it out"
        )
    if min_score is not None and not isinstance(objective, CanDetect):
        raise UsageError(
            f"--min-score {min_score:g} is for bounding boxes, but this run's model predicts none; leave it out"
        )
    if out_dir is not None and not draws_pictures(abilities(objective)):
        raise UsageError(
            f"--output {out_dir} is for masks, boxes and restored images, but this run's model predicts none; leave "
            "it out"
        )
    if num_samples:
        _measure_noise(objective, run if isinstance(run, Run) else Run.open(run), num_samples)
    if isinstance(objective, CanForecast):
        _measure_forecast_errors(objective, run if isinstance(run, Run) else Run.open(run))
    options = _PredictOptions(mc_passes, num_samples, num_beams, MIN_SHOWN_SCORE if min_score is None else min_score)
    names, columns = data.encoder.read(inputs)
    for text in describe_unseen_inputs(data.encoder, inputs):
        warn(text)
    predictions: Iterator[Prediction] = (
        prediction
        for batch in _encode_inputs(objective, data, names, columns)
        for prediction in _predict_batch(objective, data, batch, options)
    )
    if isinstance(data.encoder, KnowsForecastDates):
        predictions = _add_dates(predictions, data.encoder.list_forecast_dates(inputs))
    named_predictions = ({"input": name, **prediction} for name, prediction in zip(names, predictions, strict=True))
    return list(named_predictions) if out_dir is None else save_pictures(named_predictions, data, Path(out_dir))


def _measure_noise(objective: Objective, run: Run, num_samples: int) -> None:
    """Where the loss does not learn the noise, samples get the standard deviation of the validation residuals."""
    likelihood = getattr(objective, "likelihood", None)
    if not isinstance(likelihood, Regression) or likelihood.learns_noise:
        return
    rmse = (run.metadata.get("validation") or {}).get("rmse")
    if rmse is None:
        raise UsageError(
            f"--num-samples {num_samples} needs the validation residuals, which {run.folder} has only when it is "
            f"finished; continue it with: didact resume {run.folder}"
        )
    likelihood.residual_std = float(rmse)


def _measure_forecast_errors(objective: Any, run: Run) -> None:
    """The mean squared error of the first and the last step on the validation split, for prediction intervals."""
    scores = run.metadata.get("validation") or {}
    if scores.get("loss") is None or not scores.get("rmse"):
        return
    rmses = (scores.get(f"rmse_{k}_ahead", scores["rmse"]) for k in (1, objective.horizon))
    objective.residual_variance = tuple(scores["loss"] * (rmse / scores["rmse"]) ** 2 for rmse in rmses)


def _add_dates(predictions: Iterable[Prediction], dates: Sequence[list[str] | None]) -> Iterator[Prediction]:
    """The dates of each forecast, where they are known."""
    for prediction, own_dates in zip(predictions, dates, strict=True):
        yield {**({"dates": own_dates} if own_dates else {}), **prediction}


def _encode_inputs(objective: Objective, data: Data, names: Sequence[str], columns: Batch) -> Iterator[Batch]:
    """Inputs in large batches, encoded as in training; for restoration each image alone, in its full size."""
    assert data.encoder is not None
    if isinstance(objective, CanReconstruct) and objective.any_size:
        yield from ({"x": _original_image(name, data)[None]} for name in names)
        return
    split = TensorSplit(columns, data.encoder.decoders)
    for index in torch.arange(len(split)).split(max(1, min(1024, _MAX_INPUT_ELEMENTS // max(1, data.num_features)))):
        yield split.batch(index)


@torch.no_grad()
def _predict_batch(objective: Objective, data: Data, batch: Batch, options: _PredictOptions) -> list[Prediction]:
    """A prediction for each example, by the first ability in _PREDICTORS that the objective has."""
    predictor = next(
        (predictor for ability, predictor in _PREDICTORS.items() if isinstance(objective, ABILITIES[ability])), None
    )
    if predictor is None:
        raise UsageError(
            f"this run's model can do none of: {', '.join(_PREDICTORS)}; `didact list` shows what each recipe can do"
        )
    predictions = predictor(objective, data, batch, options)
    if options.num_samples:
        if not isinstance(objective, CanSampleTargets):
            raise UsageError(
                f"--num-samples {options.num_samples} is for classes and numbers, but this run's model predicts "
                "neither; leave it out"
            )
        samples = torch.stack([objective.draw(batch) for _ in range(options.num_samples)], dim=1)
        for prediction, row in zip(predictions, samples.tolist(), strict=True):
            prediction["samples"] = [_format_sample(data, sample) for sample in row]
    return predictions


def _predict_classes(objective: Any, data: Data, batch: Batch, options: _PredictOptions) -> list[Prediction]:
    p = (
        mc_dropout(objective, batch, passes=options.mc_passes)
        if options.mc_passes
        else MeanAndStd(objective.classify(batch), None)
    )
    return [_format_classes(data, *row) for row in _unbind_examples(p)]


def _predict_values(objective: Any, data: Data, batch: Batch, options: _PredictOptions) -> list[Prediction]:
    p = mc_dropout(objective, batch, passes=options.mc_passes) if options.mc_passes else objective.regress(batch)
    return [_format_value(data, *row) for row in _unbind_examples(p)]


def _predict_boxes(objective: Any, data: Data, batch: Batch, options: _PredictOptions) -> list[Prediction]:
    detections = (confident_detections(rows, min_score=options.min_score) for rows in objective.detect(batch).cpu())
    return [_format_boxes(data, *row) for row in zip(detections, batch["size"].tolist(), strict=True)]


def _predict_masks(objective: Any, data: Data, batch: Batch, options: _PredictOptions) -> list[Prediction]:
    """The fraction of the image that each class covers, and the mask."""
    predictions = []
    for mask in objective.segment(batch).argmax(1).cpu():
        share = torch.bincount(mask.flatten(), minlength=data.num_classes) / mask.numel()
        predictions.append({"shares": dict(zip(data.class_names, share.tolist(), strict=True)), "mask": mask})
    return predictions


def _predict_reconstructions(objective: Any, data: Data, batch: Batch, options: _PredictOptions) -> list[Prediction]:
    return [{"restored": image} for image in objective.restore(batch).cpu()]


def _predict_translations(objective: Any, data: Data, batch: Batch, options: _PredictOptions) -> list[Prediction]:
    assert isinstance(data.encoder, PairEncoder)
    return [
        {"translation": data.encoder.target.decode(row)}
        for row in objective.translate(batch, num_beams=options.num_beams).tolist()
    ]


def _predict_masked_tokens(objective: Any, data: Data, batch: Batch, options: _PredictOptions) -> list[Prediction]:
    """The text with each mask replaced by the likeliest token, and the runners-up."""
    assert isinstance(data.encoder, MaskedTextEncoder)
    predictions = []
    for x, n, p in zip(batch["x"], batch["length"].tolist(), objective.fill(batch), strict=True):
        is_masked = p.sum(-1) > 0
        if not bool(is_masked.any()):
            raise UsageError(f"expected a text with at least one {MASK_TOKEN}, got none")
        ids, decode = torch.where(is_masked, p.argmax(-1), x)[:n].tolist(), data.encoder.tokenizer.decode
        top_tokens = (row.topk(min(_TOP_CLASSES, len(row))) for row in p[is_masked])
        guesses = [
            {decode([i]) or data.class_names[i]: v for v, i in zip(*map(Tensor.tolist, candidates), strict=True)}
            for candidates in top_tokens
        ]
        predictions.append({"filled": decode(ids), "guesses": guesses})
    return predictions


def _predict_tags(objective: Any, data: Data, batch: Batch, options: _PredictOptions) -> list[Prediction]:
    """The likeliest label of each labeled token, and the probability of all of them together."""
    predictions = []
    for p in objective.tag(batch):
        best, label = p[p.sum(-1) > 0].max(-1)
        predictions.append(
            {"tags": " ".join(data.class_names[k] for k in label.tolist()), "probability": float(best.prod())}
        )
    return predictions


def _predict_forecasts(objective: Any, data: Data, batch: Batch, options: _PredictOptions) -> list[Prediction]:
    """The next values, with 95 % prediction intervals by the errors of the validation split."""
    forecast, std = objective.forecast(batch), objective.predict_std(batch)
    predictions = [{_target_name(data): row} for row in forecast.tolist()]
    if std is not None:
        bounds = zip((forecast - 1.96 * std).tolist(), (forecast + 1.96 * std).tolist(), strict=True)
        for prediction, (low, high) in zip(predictions, bounds, strict=True):
            prediction |= {"low": low, "high": high}
    return predictions


# in this order: an objective predicts by the first of these abilities that it has
_PREDICTORS: dict[str, Callable[[Any, Data, Batch, _PredictOptions], list[Prediction]]] = {
    "classify": _predict_classes,
    "regress": _predict_values,
    "detect": _predict_boxes,
    "segment": _predict_masks,
    "restore": _predict_reconstructions,
    "translate": _predict_translations,
    "tag": _predict_tags,
    "fill": _predict_masked_tokens,
    "forecast": _predict_forecasts,
}


_PICTURE_ABILITIES = ("detect", "segment", "restore")   # abilities whose predictions are images


def draws_pictures(ability_names: Sequence[str]) -> bool:
    """Whether an objective with these abilities predicts images."""
    return next((ability for ability in _PREDICTORS if ability in ability_names), "") in _PICTURE_ABILITIES


def _original_image(name: str, data: Data) -> Tensor:
    """The input image in its full size: (C, H, W) in [0, 1]."""
    image: Tensor = data.encoder.open_full_size(name)  # type: ignore[union-attr]
    return image / 255


# parts of a prediction that are saved as PNG files
_RENDERERS: dict[str, Callable[[str, Data, Tensor], Tensor]] = {
    # the class index of each pixel
    "classes": lambda name, data, mask: resize_mask(mask, _original_image(name, data).shape[1:])[None] / 255,
    "mask": lambda name, data, mask: overlay_mask(_original_image(name, data), mask, data.num_classes),
    "frames": lambda name, data, boxes: draw_boxes(_original_image(name, data), boxes, data.class_names),
    "restored": lambda name, data, image: image,
}


def save_pictures(predictions: Iterable[Prediction], data: Data, out_dir: Path) -> list[Prediction]:
    """Predictions with their images saved, one by one, since many photographs would not fit in memory.

    Of inputs with the same name the later ones are numbered.
    """
    used_paths: set[Path] = set()
    saved = []
    for prediction in predictions:
        stem = Path(prediction["input"]).stem
        if (mask := prediction.pop("mask", None)) is not None:
            prediction |= {"classes": mask, "mask": mask}      # for programs, and for people
        for part in _RENDERERS.keys() & prediction.keys():
            candidates = (out_dir / f"{stem}{'' if k == 1 else f'-{k}'}-{part}.png" for k in count(1))
            path = next(path for path in candidates if path not in used_paths)
            used_paths.add(path)
            files.write_bytes(path, encode_png(_RENDERERS[part](prediction["input"], data, prediction[part])))
            prediction[part] = str(path)
        saved.append(prediction)
    return saved


def _unbind_examples(p: MeanAndStd) -> list[tuple[Tensor, Tensor | None]]:
    stds = p.std.unbind() if p.std is not None else [None] * len(p.mean)
    return list(zip(p.mean.unbind(), stds, strict=True))


def _format_classes(data: Data, p: Tensor, std: Tensor | None) -> dict[str, Any]:
    """The likeliest class, its probability and the runners-up; for multi-label targets all likely labels."""
    top = p.argsort(descending=True)[: min(_TOP_CLASSES, len(p))]
    prediction: dict[str, Any] = {"label": data.class_names[int(top[0])], "probability": float(p[top[0]])}
    if data.task == "multilabel":
        prediction = {"labels": [data.class_names[i] for i in (p > 0.5).nonzero()[:, 0].tolist()]}
    if std is not None:
        prediction["std"] = float(std[top[0]])
    return prediction | {"probabilities": {data.class_names[int(i)]: float(p[i]) for i in top}}


def _target_name(data: Data) -> str:
    """The target's name as a key, other than those of a prediction's other parts."""
    return f"predicted {data.target}" if data.target in ("input", "std", "low", "high", "samples") else data.target


def _format_value(data: Data, mean: Tensor, std: Tensor | None) -> dict[str, Any]:
    shift = data.target_offset                   # added as double: a tensor would round it
    prediction: dict[str, Any] = {_target_name(data): float(mean) + shift}
    if std is not None:
        prediction |= {
            "std": float(std),
            "low": float(mean - 1.96 * std) + shift,
            "high": float(mean + 1.96 * std) + shift,
        }
    return prediction


def _format_sample(data: Data, sample: Any) -> Any:
    """A sample in the target's own units: a class name, labels as they are, or a number."""
    if data.task == "multilabel":
        return sample
    return data.class_names[int(sample)] if data.class_names else sample + data.target_offset


def _format_boxes(data: Data, detections: Tensor, size: Sequence[int]) -> dict[str, Any]:
    """The boxes by decreasing confidence: x1, y1, x2, y2 in pixels of the file."""
    sides = torch.tensor([*size, *size])
    boxes = [
        {
            "label": data.class_names[int(row[5])],
            "score": float(row[4]),
            "box": [round(v, 1) for v in (row[:4] * sides).tolist()],
        }
        for row in detections
    ]
    return {"boxes": boxes, "frames": detections}
