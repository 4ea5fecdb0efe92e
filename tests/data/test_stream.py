import numpy as np
import pytest
import torch
from PIL import Image

from didact.data.assemble import SAMPLE, moments
from didact.data.balance import oversample
from didact.data.core import SPLITS, Resident, unit
from didact.data.folder import load
from didact.data.stream import Streamed, resident_limit
from didact.errors import UsageError


@pytest.fixture(params=["labelled", "beside", "flat"])
def both(request, tmp_path, monkeypatch):
    """The same folder, in memory and streamed: in class folders, in such and beside them, in none."""
    for k, name in enumerate(("ant", "bee")):
        (tmp_path / name).mkdir()
        for i in range(12 + 8 * k):
            pixels = np.random.default_rng(100 * k + i).integers(0, 256, (10, 14, 3), dtype=np.uint8)
            beside = request.param == "flat" or (request.param == "beside" and i < 2)
            Image.fromarray(pixels).save(tmp_path / f"{name}{i:02}.png" if beside else tmp_path / name / f"{i:02}.png")
    if request.param == "flat":
        for name in ("ant", "bee"):
            (tmp_path / name).rmdir()
    resident = load(tmp_path, unlabelled=True)
    assert resident.task == ("binary" if request.param == "labelled" else "none")
    monkeypatch.setenv("DIDACT_RESIDENT_BYTES", "1000")
    return resident, load(tmp_path, unlabelled=True)


def workers(split, n):
    from dataclasses import replace

    return replace(split, workers=n)


@pytest.mark.parametrize("n", [0, 2])
def test_the_same_batches_as_in_memory(both, n):
    resident, streamed = both
    assert isinstance(resident.train, Resident) and isinstance(streamed.train, Streamed)
    chunks = torch.randperm(len(resident.train), generator=torch.Generator().manual_seed(0)).split(5)
    split = workers(streamed.train, n).to(torch.device("cpu"))
    batches = list(split.batches(chunks))
    assert len(batches) == len(chunks)
    for ours, expected in zip(batches, resident.train.batches(chunks), strict=True):
        assert ours.keys() == expected.keys()
        for name in expected:
            assert torch.equal(ours[name], expected[name]), name
        assert torch.equal(split.decode(ours)["x"], resident.train.decode(expected)["x"])


def test_everything_else_is_the_same(both):
    resident, streamed = both
    for part in SPLITS:
        assert torch.equal(resident.indices[part], streamed.indices[part])
        assert len(resident.split(part)) == len(streamed.split(part))
    assert (resident.shape, resident.counts, resident.labels) == (streamed.shape, streamed.counts, streamed.labels)
    assert resident.fingerprint == streamed.fingerprint, "a run is the same whether memory was free or not"
    torch.testing.assert_close(resident.mean, streamed.mean)
    torch.testing.assert_close(resident.std, streamed.std)
    assert any("read while learning" in note for note in streamed.notes)
    assert any("not looked for" in note for note in streamed.notes)
    if resident.labels:
        assert oversample(streamed).counts == oversample(resident).counts


def test_streaming_leaves_the_global_generator_alone(both):
    _, streamed = both
    before = torch.get_rng_state()
    list(workers(streamed.train, 0).batches([torch.arange(3)]))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("n", [0, 2])
def test_a_damaged_image_is_named_in_one_line(both, n):
    _, streamed = both
    file = streamed.train.files[1]
    with open(file, "wb"):
        pass
    with pytest.raises(UsageError, match="is empty") as error:
        list(workers(streamed.train, n).batches([torch.arange(3)]))
    assert "\n" not in str(error.value) and file in str(error.value)


def test_an_epoch_may_be_left_early(both):
    _, streamed = both
    batches = workers(streamed.train, 2).batches(torch.arange(20).split(2))
    assert len(next(batches)["x"]) == 2
    batches.close()


def ramp(file):
    return torch.full((1, 2, 2), int(file) % 256, dtype=torch.uint8)


def test_a_sample_is_measured():
    seen = []

    def read(file):
        seen.append(file)
        return ramp(file)

    n = 3 * SAMPLE
    mean, std = moments(Streamed(tuple(map(str, range(n))), read, {}, {"x": unit}))
    assert len(seen) == SAMPLE + 1 and mean.shape == (1, 1, 1)
    assert mean.item() == pytest.approx(0.5, abs=0.01) and std.item() == pytest.approx(12**-0.5, abs=0.01)


def test_the_limit(monkeypatch):
    monkeypatch.delenv("DIDACT_RESIDENT_BYTES", raising=False)
    assert resident_limit() > 2**20
    monkeypatch.setenv("DIDACT_RESIDENT_BYTES", "12")
    assert resident_limit() == 12
    monkeypatch.setenv("DIDACT_RESIDENT_BYTES", "lots")
    with pytest.raises(UsageError, match="number of bytes, got 'lots'"):
        resident_limit()
