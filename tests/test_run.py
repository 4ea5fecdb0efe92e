"""A run's folder: found by its name, held by one process, whole or not there."""

import subprocess
import sys
from pathlib import Path

import pytest

import didact
from didact import recipes
from didact.data.load import load
from didact.errors import UsageError
from didact.registry import RECIPES
from didact.report import write_report
from didact.run import Run, find_run
from didact.schema import RUN_METADATA, MapOf, Nullable, Scalar

HOLD_LOCK_SCRIPT = """
import sys
from pathlib import Path
from didact.run import Run
with Run(Path(sys.argv[1])).lock():
    print("held", flush=True)
    input()
"""


@pytest.fixture
def trained_run(workdir):
    return didact.train(recipes.mlp, data="iris", hidden=(4,), epochs=1)


def test_locked_run_is_trained_by_one_process_at_a_time(trained_run):
    trained_run.update_metadata(status="stopped")
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD_LOCK_SCRIPT, str(trained_run.folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    with pytest.raises(UsageError, match="is being trained by another process"):
        didact.training.resume.resume(trained_run)
    process.kill()
    process.communicate()
    with trained_run.lock():
        pass


def test_locked_removes_leftover_temporary_files(trained_run):
    leftover = trained_run.folder / ".state.safetensors.4711.tmp"
    leftover.write_bytes(b"half")
    with trained_run.lock():
        assert not leftover.exists()
    assert trained_run.has("state.safetensors")


def test_existing_run_folder_is_not_overwritten(trained_run, monkeypatch):
    files_before = {path.name: path.read_bytes() for path in trained_run.folder.iterdir() if path.is_file()}
    monkeypatch.setattr(Run, "at_new_path", lambda root, recipe: trained_run)
    with pytest.raises(UsageError, match="exists already"):
        didact.train(recipes.mlp, data="iris", hidden=(7,), epochs=1)
    assert {path.name: path.read_bytes() for path in trained_run.folder.iterdir() if path.is_file()} == files_before


def test_find_run_resolves_names(trained_run):
    root = trained_run.folder.parent.parent
    for name in ("latest", "mlp/latest", f"{root}/mlp/latest", trained_run.folder.name[-4:]):
        assert find_run(name, root) == trained_run.folder
    with pytest.raises(UsageError, match="no run named 'nope'"):
        find_run("nope", root)
    with pytest.raises(UsageError, match=r"no run of 'consistency' under .*, which holds runs of mlp; train one first"):
        find_run("consistency/latest", root)
    with pytest.raises(UsageError, match=r"there is no run under .* yet; train one first"):
        find_run("mlp/latest", root / "empty")


def test_reproduce_command_names_data_loaded_in_python(workdir):
    wine_run = didact.train(recipes.mlp, data=load("wine", seed=3), hidden=(4,), epochs=1)
    assert wine_run.metadata["command_to_repeat"] == "didact train mlp --hidden 4 --epochs 1 --data wine --split-seed 3"
    (workdir / "own.csv").write_text("a,b,kind\n" + "".join(f"{i},{i % 7},{'xy'[i % 2]}\n" for i in range(60)))
    csv_run = didact.train(recipes.mlp, data=load("own.csv", target="kind"), hidden=(4,), epochs=1)
    assert f"--data {workdir / 'own.csv'} --target kind" in csv_run.metadata["command_to_repeat"]


def test_interrupted_run_has_status_stopped(workdir, monkeypatch):
    monkeypatch.setattr("didact.training.loop.Trainer.stop_requested", lambda self, patience: self.state.step == 3)
    with pytest.raises(didact.training.interrupts.Interrupted, match="stopped at step 3 of"):
        didact.train(recipes.mlp, data="iris", hidden=(4,), epochs=2, batch_size=16)
    assert Run.open("latest").metadata["status"] == "stopped"


def find_unknown_keys(value, shape, path=""):
    """The keys of run.json that no shape describes."""
    if isinstance(shape, Nullable):
        return [] if value is None else find_unknown_keys(value, shape.shape, path)
    if isinstance(shape, MapOf):
        return [key for name, v in value.items() for key in find_unknown_keys(v, shape.shape, f"{path}.{name}")]
    if isinstance(shape, list):
        return [key for v in value for key in find_unknown_keys(v, shape[0], path)]
    if isinstance(shape, Scalar) or path == ".data.encoder":       # each kind of encoder checks its own
        return []
    shapes = {name.rstrip("?"): inner for name, inner in shape.items()}
    return [
        key
        for name, v in value.items()
        for key in (find_unknown_keys(v, shapes[name], f"{path}.{name}") if name in shapes else [f"{path}.{name}"])
    ]


@pytest.mark.parametrize(("recipe", "options"), [
    ("mlp", {"hidden": (4,)}), ("tabular", {"data": "iris", "members": 2, "hidden": (4,)}),
    ("forecast", {"hidden_size": 4, "window": 12}), ("vae", {"hidden": (8,)}), ("fasttext", {"embed_dim": 4}),
    ("tabular", {"data": "t.csv", "members": 2, "hidden": (4,), "test": "t.csv", "drop": ("b",), "sample_weight": "w"}),
])  # fmt: skip
def test_every_key_of_run_json_has_a_shape(workdir, recipe, options):
    """Where it is read from a damaged file, a value of another kind is then refused by name."""
    Path("t.csv").write_text("a,b,w,y\n" + "".join(f"{i},{i % 7},{1 + i % 3},{i * i}\n" for i in range(60)))
    run = didact.train(RECIPES[recipe], steps=2, batch_size=16, **options)
    assert find_unknown_keys(run.metadata, RUN_METADATA) == []


def test_tensor_files_that_changed_places_are_refused(workdir):
    run = didact.train(RECIPES["vae"], hidden=(8,), steps=2)
    gallery, samples = (run.folder / f"{name}.safetensors" for name in ("gallery", "training_samples"))
    content = gallery.read_bytes(), samples.read_bytes()
    samples.write_bytes(content[0])
    gallery.write_bytes(content[1])
    with pytest.raises(UsageError, match=r"gallery.safetensors holds what belongs into training_samples.safetensors"):
        write_report(run)
    gallery.write_bytes(content[0])
    run.save("training_samples", run.load("gallery"))            # as it was before files named their place
    with pytest.raises(UsageError, match=r"training_samples.safetensors expects images by step, got .*samples"):
        write_report(run)
