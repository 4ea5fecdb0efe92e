"""FolderTree: one walk of a dataset's folder."""

import builtins
import inspect
import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from didact.data.folder_tree import FolderTree
from didact.data.load import load
from didact.data.tables.read_table import read_table
from didact.data.tables.table_options import TableOptions
from didact.errors import UsageError


@pytest.fixture
def open_counts(monkeypatch):
    """How often each directory is listed and each file opened."""
    counts, scandir, open_file = Counter(), os.scandir, builtins.open

    def count_scandir(path):
        counts[str(path)] += 1
        return scandir(path)

    def count_open(path, *args, **kwargs):
        counts[str(path)] += 1
        return open_file(path, *args, **kwargs)

    monkeypatch.setattr(os, "scandir", count_scandir)
    monkeypatch.setattr(builtins, "open", count_open)
    monkeypatch.setattr("io.open", count_open)
    return counts


def write_images(folder, n=12):
    for i in range(n):
        path = folder / "ab"[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (6, 6), dtype=np.uint8)).save(path)
    return folder


def test_image_folder_is_walked_once_and_each_image_opened_twice(tmp_path, open_counts):
    folder = write_images(tmp_path / "pics")
    open_counts.clear()
    load(str(folder))
    assert {str(f): open_counts[str(f)] for f in (folder, folder / "a", folder / "b")} == {
        str(f): 1 for f in (folder, folder / "a", folder / "b")
    }
    # once for its size and mode, once for its pixels and its bytes in the fingerprint
    assert {open_counts[str(path)] for path in folder.rglob("*.png")} == {2}


def test_folder_tree_lists_files_in_order_without_hidden_ones(tmp_path):
    for name in ("b/2.png", "b/10.PNG", "b/deep/1.jpg", "a/x.png", ".git/y.png", "b/.z.png", "a/notes.txt", ".c/t.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    tree = FolderTree(tmp_path)
    images, num_others = tree.list_images()
    assert [os.path.relpath(path, tmp_path) for path in images] == ["a/x.png", "b/10.PNG", "b/2.png", "b/deep/1.jpg"]
    assert num_others == 1
    assert [path.name for path in tree.list_subfolders()] == ["a", "b"]
    assert [Path(path).name for path in tree.list_images_flat(tmp_path / "b")] == ["10.PNG", "2.png"]
    assert [path.name for path in tree.list_files((".txt",))] == ["notes.txt"]
    assert sorted(path.name for path in tree.list_files((".txt",), hidden_folders=True)) == ["notes.txt", "t.txt"]
    with pytest.raises(UsageError, match=r"cannot read the folder .*none: No such file"):
        tree.list_subfolders(tmp_path / "none")


def test_folder_tree_follows_no_link_to_a_folder_and_refuses_one_to_a_file_outside(tmp_path):
    folder, outside = write_images(tmp_path / "pics"), tmp_path / "secret.png"
    outside.touch()
    (folder / "c").symlink_to(folder / "a")
    assert len(FolderTree(folder).list_images()[0]) == 12
    assert [path.name for path in FolderTree(folder).list_subfolders()] == ["a", "b", "c"]
    (folder / "a" / "link.png").symlink_to(outside)
    with pytest.raises(UsageError, match=r"link\.png lies outside of"):
        FolderTree(folder).list_images()


def test_image_folder_may_be_the_current_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(write_images(tmp_path / "pics"))
    data = load(".")
    assert not any("left out" in note for note in data.notes)
    assert data.name == "pics" and data.locate_examples("train", [0])[0][:2] in ("a/", "b/")


def test_folders_nested_deeper_than_calls_can_be(tmp_path):
    folder = tmp_path.joinpath(*("d" * 300))
    folder.mkdir(parents=True)
    (folder / "a.png").touch()
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 100)
    try:
        walked = [path for path, _ in FolderTree(tmp_path).walk(tmp_path)]
        images = FolderTree(tmp_path).list_images()
    finally:
        sys.setrecursionlimit(limit)
    assert len(walked) == 301 and images == ([str(folder / "a.png")], 0)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_pipes_are_no_files(tmp_path, monkeypatch):
    """Opening one waits for a writer: for ever."""
    write_images(tmp_path / "pics")
    os.mkfifo(tmp_path / "pics" / "a" / "x.png")
    data = load(str(tmp_path / "pics"))
    assert len(data.train) + len(data.validation) + len(data.test) == 12
    os.mkfifo(tmp_path / "t.csv")
    (tmp_path / "iris.csv").write_text("a,y\n" + "1,0\n2,1\n" * 20)
    monkeypatch.chdir(tmp_path)
    for name in (tmp_path / "t.csv", "/dev/null"):
        with pytest.raises(UsageError, match=r"is a pipe or a device: give a file, or pipe a table into --data -"):
            load(str(name))
    with pytest.raises(UsageError, match=r"/dev/zero is a device: expected the file of a table"):
        load("iris.csv", table=TableOptions(test="/dev/zero"))
    with pytest.raises(UsageError, match=r"cannot read x+.csv \(File name too long\)"):
        read_table(Path("x" * 300 + ".csv"))
