"""What is said of a write that failed: what the system said, and a remedy only where it is one."""

import errno
import os

import pytest
from safetensors import SafetensorError

from didact import files
from didact.errors import UsageError


@pytest.mark.parametrize(("number", "room", "place"), [
    (errno.ENOSPC, True, True), (errno.EDQUOT, True, True), (errno.EFBIG, True, True),
    (errno.EPERM, False, True), (errno.EISDIR, False, True),
    (errno.EROFS, False, True), (errno.ENOENT, False, False), (errno.EIO, False, False),
])
def test_only_a_full_disk_wants_space(number, room, place, tmp_path):
    def fail(beside):
        raise OSError(number, os.strerror(number))

    with pytest.raises(UsageError) as told:
        files.replace_with(tmp_path / "x", fail)
    assert os.strerror(number) in str(told.value)
    assert ("free space" in str(told.value), "choose another place" in str(told.value)) == (room, place)


def test_the_error_of_safetensors_is_the_systems(tmp_path, monkeypatch):
    def full(*_, **__):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("safetensors.torch.save_file", full)
    with pytest.raises(UsageError, match="No space left on device; free space"):
        files.write_tensors(tmp_path / "x.safetensors", {})


def test_names_of_files_that_are_no_utf8_are_kept_in_json(tmp_path):
    name = os.fsdecode(b"caf\xe9.png")
    files.write_json(tmp_path / "x.json", {name: [name, "café", "\\", '"']})
    assert files.read_json(tmp_path / "x.json") == {name: [name, "café", "\\", '"']}
    assert "café" in (tmp_path / "x.json").read_text(encoding="utf-8")
