"""Resume a run that was stopped or killed, from its last checkpoint."""


from contextlib import nullcontext

from didact.errors import UsageError
from didact.run import Run
from didact.training.checkpoint import restore_checkpoint
from didact.training.device import deterministic_kernels
from didact.training.distributed.process_group import Group, join_group
from didact.training.experiment import EventCallback, ignore_events
from didact.training.loop import Trainer
from didact.training.prepare import training_device
from didact.training.restore import check_best_weights, rebuild, translate_load_errors
from didact.training.run_training import describe_start, evaluate_best, load_initial_weights, run_trainer


def resume(run: Run, *, on_event: EventCallback = ignore_events) -> Run:
    """Resume a run that was stopped or killed; it ends as if it had never been interrupted.

    A run that was killed while its report was written is returned as it is: the caller writes the report.
    """
    metadata, group = run.metadata, join_group()
    if metadata.get("status") == "finished":
        with run.lock() if group.is_main else nullcontext():      # removes what the kill left
            if not run.has("report.html"):
                return run
        raise UsageError(
            f"{run.folder} is finished; train again, or raise the budget in a new run: "
            f"{metadata.get('command_to_repeat', '')}"
        )
    with (
        run.lock() if group.is_main else nullcontext(),
        deterministic_kernels(bool(metadata["settings"].get("deterministic"))),
    ):
        return continue_run(run, group, on_event)


def continue_run(run: Run, group: Group, on_event: EventCallback) -> Run:
    """Restore the last checkpoint and train on."""
    metadata = run.metadata
    if group.is_main:
        on_event("load", {"data": metadata["data"]["name"]})
    prepared = rebuild(run, with_data=True)
    # killed before the first checkpoint was complete
    never_saved = not run.has("state.safetensors") and not run.metrics
    checkpoint = None if never_saved else run.load_state()
    if never_saved:
        prepared = load_initial_weights(prepared, group, on_event)
    trainer = Trainer(
        prepared.experiment,
        prepared.settings,
        device=training_device(prepared, group),
        run=run,
        group=group,
        on_event=on_event,
    )
    start = describe_start(prepared, trainer)
    if checkpoint is not None:
        with translate_load_errors(run, "state"):
            restore_checkpoint(trainer, checkpoint)
        check_best_weights(run, trainer.state)
    if group.is_main:
        lost_bytes = run.truncate_log(trainer.state.log_size)
        gap_note = (
            f"metrics.jsonl has lost its last {lost_bytes:,} bytes: the curves have a gap before step "
            f"{trainer.state.step}"
        )
        run.update_metadata(status="running", processes=group.world_size)
        notes = [*metadata.get("notes", ()), *([gap_note] if lost_bytes else [])]
        on_event("start", metadata | start | {"run": str(run.folder), "resumed": trainer.state.step, "notes": notes})
    state = trainer.state if trainer.state.stop_reason else run_trainer(trainer)
    return evaluate_best(trainer, state, prepared)
