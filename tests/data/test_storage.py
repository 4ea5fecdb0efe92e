import numpy as np
import pytest
import torch
from PIL import Image

from didact.data.balance import oversample
from didact.data.build import STATISTICS_SAMPLE_SIZE, compute_mean_std
from didact.data.core import SPLITS, TensorSplit, uint8_to_unit
from didact.data.images.image_folder import load_image_folder
from didact.data.storage import FileSplit, in_memory_limit
from didact.errors import UsageError


@pytest.fixture(params=["labelled", "beside", "flat"])
def resident_and_streamed(request, tmp_path, monkeypatch):
    """The same folder in memory and streamed: images in class folders, also beside them, without class folders."""
    for k, name in enumerate(("ant", "bee")):
        (tmp_path / name).mkdir()
        for i in range(12 + 8 * k):
            pixels = np.random.default_rng(100 * k + i).integers(0, 256, (10, 14, 3), dtype=np.uint8)
            is_unlabeled = request.param == "flat" or (request.param == "beside" and i < 2)
            Image.fromarray(pixels).save(
                tmp_path / f"{name}{i:02}.png" if is_unlabeled else tmp_path / name / f"{i:02}.png"
            )
    if request.param == "flat":
        for name in ("ant", "bee"):
            (tmp_path / name).rmdir()
    resident = load_image_folder(tmp_path, allow_unlabeled=True)
    assert resident.task == ("binary" if request.param == "labelled" else "none")
    monkeypatch.setenv("DIDACT_RESIDENT_BYTES", "1000")
    return resident, load_image_folder(tmp_path, allow_unlabeled=True)


def with_workers(split, num_workers):
    from dataclasses import replace

    return replace(split, num_workers=num_workers)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_file_split_gives_the_same_batches_as_memory(resident_and_streamed, num_workers):
    resident, streamed = resident_and_streamed
    assert isinstance(resident.train, TensorSplit) and isinstance(streamed.train, FileSplit)
    chunks = torch.randperm(len(resident.train), generator=torch.Generator().manual_seed(0)).split(5)
    split = with_workers(streamed.train, num_workers).to(torch.device("cpu"))
    batches = list(split.batches(chunks))
    assert len(batches) == len(chunks)
    for batch, expected in zip(batches, resident.train.batches(chunks), strict=True):
        assert batch.keys() == expected.keys()
        for name in expected:
            assert torch.equal(batch[name], expected[name]), name
        assert torch.equal(split.decode(batch)["x"], resident.train.decode(expected)["x"])


def test_file_split_data_equal_the_resident_data(resident_and_streamed):
    resident, streamed = resident_and_streamed
    for part in SPLITS:
        assert torch.equal(resident.indices[part], streamed.indices[part])
        assert len(resident.split(part)) == len(streamed.split(part))
    assert (resident.shape, resident.class_counts, resident.class_names) == (
        streamed.shape,
        streamed.class_counts,
        streamed.class_names,
    )
    assert resident.fingerprint == streamed.fingerprint, "a run is the same whether memory was free or not"
    torch.testing.assert_close(resident.mean, streamed.mean)
    torch.testing.assert_close(resident.std, streamed.std)
    assert any("read during training" in note for note in streamed.notes)
    assert any("not counted" in note for note in streamed.notes)
    if resident.class_names:
        assert oversample(streamed).class_counts == oversample(resident).class_counts


def test_file_split_leaves_the_global_generator_alone(resident_and_streamed):
    _, streamed = resident_and_streamed
    old_state = torch.get_rng_state()
    list(with_workers(streamed.train, 0).batches([torch.arange(3)]))
    assert torch.equal(old_state, torch.get_rng_state())


@pytest.mark.parametrize("num_workers", [0, 2])
def test_file_split_names_a_damaged_image_in_one_line(resident_and_streamed, num_workers):
    _, streamed = resident_and_streamed
    file = streamed.train.files[1]
    with open(file, "wb"):
        pass
    with pytest.raises(UsageError, match="is empty") as error:
        list(with_workers(streamed.train, num_workers).batches([torch.arange(3)]))
    assert "\n" not in str(error.value) and file in str(error.value)


def test_file_split_epoch_may_be_closed_early(resident_and_streamed):
    _, streamed = resident_and_streamed
    batches = with_workers(streamed.train, 2).batches(torch.arange(20).split(2))
    assert len(next(batches)["x"]) == 2
    batches.close()


def make_constant_image(file):
    return torch.full((1, 2, 2), int(file) % 256, dtype=torch.uint8)


def test_mean_and_std_of_a_file_split_are_sampled():
    read_paths = []

    def read_image(file):
        read_paths.append(file)
        return make_constant_image(file)

    n = 3 * STATISTICS_SAMPLE_SIZE
    mean, std = compute_mean_std(FileSplit(tuple(map(str, range(n))), read_image, {}, {"x": uint8_to_unit}))
    assert len(read_paths) == STATISTICS_SAMPLE_SIZE + 1 and mean.shape == (1, 1, 1)
    assert mean.item() == pytest.approx(0.5, abs=0.01) and std.item() == pytest.approx(12**-0.5, abs=0.01)


def test_in_memory_limit_reads_the_environment(monkeypatch):
    monkeypatch.delenv("DIDACT_RESIDENT_BYTES", raising=False)
    assert in_memory_limit() > 2**20
    monkeypatch.setenv("DIDACT_RESIDENT_BYTES", "12")
    assert in_memory_limit() == 12
    monkeypatch.setenv("DIDACT_RESIDENT_BYTES", "lots")
    with pytest.raises(UsageError, match="number of bytes, got 'lots'"):
        in_memory_limit()
