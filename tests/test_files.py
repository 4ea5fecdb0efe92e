"""What is said of a write that failed: what the system said, and a remedy only where it is one."""

import errno
import os

import pytest
from safetensors import SafetensorError

from didact import files
from didact.errors import UsageError


@pytest.mark.parametrize(
    ("error_number", "advises_space", "advises_other_path"),
    [
        (errno.ENOSPC, True, True),
        (errno.EDQUOT, True, True),
        (errno.EFBIG, True, True),
        (errno.EPERM, False, True),
        (errno.EISDIR, False, True),
        (errno.EROFS, False, True),
        (errno.ENOENT, False, False),
        (errno.EIO, False, False),
    ],
)
def test_atomic_write_advises_to_free_space_only_for_a_full_disk(
    error_number, advises_space, advises_other_path, tmp_path
):
    def fail(temporary):
        raise OSError(error_number, os.strerror(error_number))

    with pytest.raises(UsageError) as error:
        files.atomic_write(tmp_path / "x", fail)
    assert os.strerror(error_number) in str(error.value)
    assert ("free space" in str(error.value), "choose another place" in str(error.value)) == (
        advises_space,
        advises_other_path,
    )


def test_write_tensors_reports_the_system_error(tmp_path, monkeypatch):
    def raise_disk_full(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", raise_disk_full)
    with pytest.raises(UsageError, match="No space left on device; free space"):
        files.write_tensors(tmp_path / "x.safetensors", {})


def test_json_keeps_file_names_that_are_not_utf8(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    files.write_json(tmp_path / "x.json", {name: [name, "café", "\\", '"']})
    assert files.read_json(tmp_path / "x.json") == {name: [name, "café", "\\", '"']}
    assert "café" in (tmp_path / "x.json").read_text(encoding="utf-8")
