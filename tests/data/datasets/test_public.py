"""Public datasets: where files are found, how they are checked, and their published sizes."""

import gzip
import hashlib
import http.server
import io
import lzma
import struct
import tarfile
import threading
from dataclasses import replace

import pytest
import torch

from didact.data.core import SPLITS
from didact.data.datasets import public
from didact.data.datasets.archives import parse_cifar, parse_idx, read_decompressed, read_tar_members
from didact.data.datasets.download import (
    DATASETS,
    DatasetEntry,
    RemoteFile,
    ensure_dataset,
    ensure_file,
    find_local_file,
    find_missing_files,
    load_cached,
    read_files,
)
from didact.errors import UsageError

CONTENT = b"the content of a file\n" * 50
COMPRESSORS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def make_remote_file(content=CONTENT, name="some-file", url="http://127.0.0.1:1/some-file.gz", **arguments):
    return RemoteFile(name, hashlib.sha256(content).hexdigest(), url, **arguments)


@pytest.fixture
def data_folders(tmp_path, monkeypatch):
    """The dataset's own folder, the common one and the cache, all empty."""
    monkeypatch.setenv("DIDACT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    set_folder, data_folder, cache_folder = tmp_path / "data" / "toy", tmp_path / "data", tmp_path / "cache" / "toy"
    set_folder.mkdir(parents=True)
    cache_folder.mkdir(parents=True)
    return set_folder, data_folder, cache_folder


@pytest.fixture
def serve_file(tmp_path):
    """serve(path, body) -> url, from a server of this machine; `claimed` is a Content-Length that may be wrong."""
    bodies = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path not in bodies:
                self.send_error(404)
                return
            body, claimed = bodies[self.path]
            self.send_response(200)
            self.send_header("Content-Length", str(claimed))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    def add_file(path, body, claimed=None):
        bodies[path] = body, len(body) if claimed is None else claimed
        return f"http://127.0.0.1:{server.server_port}{path}"

    yield add_file
    server.shutdown()
    thread.join()
    server.server_close()


def test_find_local_file_searches_in_documented_order(data_folders):
    file = make_remote_file()
    for folder in reversed(data_folders):  # each folder comes before those filled earlier
        assert find_local_file("toy", file) != folder / "some-file.xz"
        (folder / "some-file.xz").write_bytes(lzma.compress(CONTENT))
        assert find_local_file("toy", file) == ensure_file("toy", file) == folder / "some-file.xz"


def test_find_local_file_uses_the_cache_without_a_data_folder(data_folders, monkeypatch):
    set_folder, _, cache_folder = data_folders
    (set_folder / "some-file").write_bytes(CONTENT)
    monkeypatch.delenv("DIDACT_DATA")
    assert find_local_file("toy", make_remote_file()) is None
    (cache_folder / "some-file").write_bytes(CONTENT)
    assert find_local_file("toy", make_remote_file()) == cache_folder / "some-file"


def test_cache_folder_defaults_to_the_home_folder(data_folders, tmp_path, monkeypatch):
    monkeypatch.delenv("DIDACT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".cache" / "didact" / "toy"
    folder.mkdir(parents=True)
    (folder / "some-file.gz").write_bytes(gzip.compress(CONTENT))
    assert find_local_file("toy", make_remote_file()) == folder / "some-file.gz"


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_read_files_reads_plain_gz_and_xz(data_folders, suffix):
    (data_folders[0] / f"some-file{suffix}").write_bytes(COMPRESSORS[suffix](CONTENT))
    assert read_files("toy", [make_remote_file()]) == [CONTENT]


def test_read_files_reads_an_uncompressed_file_named_gz(data_folders):
    (data_folders[0] / "some-file.gz").write_bytes(CONTENT)
    assert read_files("toy", [make_remote_file()]) == [CONTENT]


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_damaged_download_is_named_with_a_remedy(data_folders, suffix, damage):
    path, content = data_folders[0] / f"some-file{suffix}", bytearray(COMPRESSORS[suffix](CONTENT))
    if damage == "cut":
        content = content[: len(content) // 2]
    else:
        content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(UsageError) as error:
        read_files("toy", [make_remote_file()])
    assert str(path) in str(error.value)
    assert "damaged" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [b"", CONTENT[:-1], CONTENT + b"x"])
def test_read_files_refuses_other_content(data_folders, content):
    (data_folders[0] / "some-file").write_bytes(content)
    with pytest.raises(UsageError, match=r"is not toy's some-file .expected .*replace it"):
        read_files("toy", [make_remote_file()])


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=f"cannot read {tmp_path}"):
        read_decompressed(tmp_path)


def test_download_is_verified_cached_and_reported(data_folders, serve_file):
    cache = data_folders[2]
    file = make_remote_file(url=serve_file("/home/some-file.gz", gzip.compress(CONTENT)))
    progress_steps = []
    path = ensure_file("toy", file, lambda *step: progress_steps.append(step))
    assert path == cache / "some-file.gz"
    assert progress_steps[-1] == ("some-file.gz", path.stat().st_size, path.stat().st_size)
    assert [p.name for p in cache.iterdir()] == ["some-file.gz"], "no part file stays"
    assert read_files("toy", [replace(file, url="http://127.0.0.1:1/some-file.gz")]) == [CONTENT], (
        "and is not fetched again"
    )


def test_download_from_a_file_url(data_folders, tmp_path):
    (tmp_path / "some-file.gz").write_bytes(gzip.compress(CONTENT))
    assert read_files("toy", [make_remote_file(url=(tmp_path / "some-file.gz").as_uri())]) == [CONTENT]


@pytest.mark.parametrize("case", ["refused", "absent", "other", "damaged", "short", "archive"])
def test_failed_download_says_where_to_put_the_file_and_leaves_nothing(data_folders, serve_file, case):
    set_folder, _, cache = data_folders
    compressed = gzip.compress(CONTENT)
    file = {
        "refused": lambda: make_remote_file(),
        "absent": lambda: make_remote_file(url=serve_file("/other", b"").replace("other", "some-file.gz")),
        "other": lambda: make_remote_file(url=serve_file("/some-file.gz", gzip.compress(b"other"))),
        "damaged": lambda: make_remote_file(url=serve_file("/some-file.gz", compressed[:-9])),
        "short": lambda: make_remote_file(url=serve_file("/some-file.gz", compressed, claimed=len(compressed) + 10)),
        "archive": lambda: make_remote_file(url=serve_file("/some-file.gz", compressed), archive_sha256="0" * 64),
    }[case]()
    with pytest.raises(UsageError) as error:
        ensure_file("toy", file)
    message = str(error.value)
    assert message.startswith("toy needs some-file.gz")
    assert f"put it into {set_folder}" in message
    assert file.url in message
    assert "\n" not in message
    reasons = {"refused": "refused", "absent": "Not Found", "damaged": "damaged", "short": "bytes received"}
    assert reasons.get(case, f"expected {(file.archive_sha256 or file.sha256)[:12]}") in message
    assert not list(cache.iterdir())


def test_unwritable_cache_is_reported(tmp_path, monkeypatch, serve_file):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path / "file"))
    monkeypatch.delenv("DIDACT_DATA", raising=False)
    with pytest.raises(UsageError, match=r"set DIDACT_DATA to a folder that holds toy/"):
        ensure_file("toy", make_remote_file(url=serve_file("/some-file.gz", gzip.compress(CONTENT))))


def test_ensure_dataset_downloads_only_missing_files(data_folders, serve_file):
    files = [
        make_remote_file(b"one", "one", serve_file("/one", b"one")),
        make_remote_file(b"two", "two", serve_file("/two.gz", b"not asked for")),
    ]
    (data_folders[1] / "two.xz").write_bytes(lzma.compress(b"two"))
    toy = DatasetEntry("toy", "table", "none", "", "", lambda: None, tuple(files))
    assert find_missing_files(toy) == (files[0],)
    ensure_dataset(toy)
    assert find_missing_files(toy) == ()
    assert [p.name for p in data_folders[2].iterdir()] == ["one"]


def test_load_cached_computes_once(data_folders):
    path = data_folders[0] / "some-file"
    path.write_bytes(CONTENT)
    calls = []

    def make_tensors():
        calls.append(1)
        return {"x": torch.arange(6).reshape(2, 3)}

    def load_and_count(version="1"):
        assert load_cached("toy", path, version, make_tensors)["x"].equal(torch.arange(6).reshape(2, 3))
        return len(calls)

    assert (load_and_count(), load_and_count()) == (1, 1)
    (cache_path,) = data_folders[2].iterdir()
    cached_bytes = cache_path.read_bytes()
    for damaged_bytes in (cached_bytes[:-1], b"", b"x" * 100):
        cache_path.write_bytes(damaged_bytes)
        calls_before = len(calls)
        assert (load_and_count(), load_and_count()) == (calls_before + 1, calls_before + 1), (
            "made anew, and written again"
        )
    assert cache_path.read_bytes() == cached_bytes
    assert load_and_count("2") == 5, "another version"
    path.write_bytes(CONTENT + CONTENT)
    assert load_and_count() == 6, "another file"


def test_load_cached_works_without_a_writable_cache(data_folders, tmp_path, monkeypatch):
    (data_folders[0] / "some-file").write_bytes(CONTENT)
    monkeypatch.setenv("DIDACT_CACHE", str(data_folders[0] / "some-file"))
    assert load_cached("toy", data_folders[0] / "some-file", "1", lambda: {"x": torch.ones(2)})["x"].tolist() == [1, 1]


def make_tar(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def test_read_files_extracts_files_of_an_archive(data_folders, serve_file):
    entries = {"box/a.bin": b"A" * 9000, "box/readme": b"no", "box/b.bin": b"B" * 700}
    archive_bytes = make_tar(entries)
    archive_sha256 = hashlib.sha256(archive_bytes).hexdigest()
    url = serve_file("/box.tar.gz", archive_bytes)
    files = [
        make_remote_file(entries[name], name, url, archive_sha256=archive_sha256) for name in ("box/b.bin", "box/a.bin")
    ]
    assert read_files("toy", files) == [entries["box/b.bin"], entries["box/a.bin"]]
    (data_folders[0] / "a.bin").write_bytes(entries["box/a.bin"])  # unpacked, without its folder
    assert find_local_file("toy", files[1]) == data_folders[0] / "a.bin"
    (data_folders[0] / "box").mkdir()
    (data_folders[0] / "box" / "a.bin").write_bytes(entries["box/a.bin"])
    assert find_local_file("toy", files[1]) == data_folders[0] / "box" / "a.bin"
    assert read_files("toy", files) == [entries["box/b.bin"], entries["box/a.bin"]]


def test_truncated_archive_is_named(data_folders):
    (data_folders[0] / "box.tar.gz").write_bytes(make_tar({"box/a.bin": bytes(range(256)) * 99})[:-40])
    with pytest.raises(UsageError, match=r"box\.tar\.gz is damaged or cut short"):
        read_tar_members(data_folders[0] / "box.tar.gz", lambda name: True)


def test_parse_idx_reads_the_published_format():
    raw = b"\0\0\x08\x03" + struct.pack(">III", 2, 3, 5) + bytes(range(30))
    assert parse_idx(raw).equal(torch.arange(30, dtype=torch.uint8).reshape(2, 3, 5))
    for bad_bytes in (b"", b"\0\0", b"\0\0\x08\0", raw[:-1], raw + b"0", b"PK" + raw, raw[:7]):
        with pytest.raises(UsageError, match="not an idx file"):
            parse_idx(bad_bytes)


def test_parse_cifar_reads_color_planes():
    record = bytes([7]) + bytes([1] * 1024 + [2] * 1024 + [3] * 1024)
    x, y = parse_cifar(record * 2)
    assert y.tolist() == [7, 7]
    assert tuple(x.shape) == (2, 3, 32, 32)
    assert [x[1, c].unique().tolist() for c in range(3)] == [[1], [2], [3]]
    for bad_bytes in (b"", record[:-1]):
        with pytest.raises(UsageError, match="3073"):
            parse_cifar(bad_bytes)


@pytest.mark.parametrize("seed", [0, 1])
def test_idx_images_are_the_same_for_every_compression(data_folders, seed):
    generator = torch.Generator().manual_seed(3)
    contents = []
    for n in (60, 20):
        x = torch.randint(256, (n, 4, 3), generator=generator, dtype=torch.uint8)
        contents.append(b"\0\0\x08\x03" + struct.pack(">III", n, 4, 3) + x.numpy().tobytes())
        contents.append(b"\0\0\x08\x01" + struct.pack(">I", n) + bytes(i % 2 for i in range(n)))
    files = [make_remote_file(raw, name) for raw, name in zip(contents, public.IDX_FILE_NAMES, strict=True)]
    loaded = []
    for suffix, compress in COMPRESSORS.items():
        for path in data_folders[0].iterdir():
            path.unlink()
        for raw, name in zip(contents, public.IDX_FILE_NAMES, strict=True):
            (data_folders[0] / (name + suffix)).write_bytes(compress(raw))
        loaded.append(public.load_idx_images("toy", files, ("even", "odd"), "parity", seed))
    assert len({data.fingerprint for data in loaded}) == 1
    assert loaded[0].shape == (1, 4, 3)
    assert loaded[0].indices["test"].equal(torch.arange(60, 80))
    assert loaded[0].class_counts == {"train": (27, 27), "validation": (3, 3), "test": (10, 10)}


def test_read_reviews_orders_reviews_by_number(data_folders, monkeypatch):
    archive_bytes = make_tar({
        "aclImdb/test/neg/0_3.txt": b"d",
        "aclImdb/train/neg/0_1.txt": b"c",
        "aclImdb/train/pos/10_9.txt": b"b\tB",
        "aclImdb/train/pos/9_7.txt": "a<br />é".encode(),
        "aclImdb/train/unsup/0_0.txt": b"no",
        "aclImdb/train/urls_pos.txt": b"no",
    })  # fmt: skip
    path = data_folders[1] / "aclImdb_v1.tar.gz"
    path.write_bytes(archive_bytes)
    assert find_local_file("imdb", public.IMDB_FILE) == path
    with pytest.raises(UsageError, match=r"aclImdb_v1\.tar\.gz is not what http"):
        public.read_reviews(path)
    monkeypatch.setattr(
        public, "IMDB_FILE", replace(public.IMDB_FILE, archive_sha256=hashlib.sha256(archive_bytes).hexdigest())
    )
    expected_reviews = [
        ("train", "pos", "a<br />é"),
        ("train", "pos", "b\tB"),
        ("train", "neg", "c"),
        ("test", "neg", "d"),
    ]
    assert public.read_reviews(path) == expected_reviews


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "adult", "imdb"])
def test_public_dataset_entries_list_their_files(name):
    entry = DATASETS[name]
    assert entry.license and entry.summary
    assert all(len(file.sha256) == 64 and file.url.startswith("http") for file in entry.files)


def load_or_skip(name, seed=0):
    missing_files = find_missing_files(DATASETS[name])
    if missing_files:
        pytest.skip(
            f"{name} needs {missing_files[0].name} and what goes with it: set DIDACT_DATA to the folder that holds it"
        )
    return DATASETS[name].load(seed)


def count_train_validation(data):
    return [sum(c) for c in zip(*(data.class_counts[s] for s in ("train", "validation")), strict=True)]


@pytest.fixture(scope="module")
def mnist():
    return load_or_skip("mnist")


def test_mnist_has_its_published_counts(mnist):
    assert mnist.shape == (1, 28, 28)
    assert count_train_validation(mnist) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert mnist.class_counts["test"] == (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)
    assert mnist.indices["test"].equal(torch.arange(60_000, 70_000))
    assert len(mnist.validation) == 6_000
    assert mnist.test.columns["x"].dtype == torch.uint8
    assert mnist.test.columns["y"][:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    split_name = next(s for s in SPLITS if 0 in mnist.indices[s])  # the 5 that heads the training file
    row = (mnist.indices[split_name] == 0).nonzero()[0, 0]
    assert mnist.split(split_name).columns["y"][row] == 5
    assert mnist.split(split_name).columns["x"][row, 0, 5, 12:18].tolist() == [3, 18, 18, 18, 126, 136]
    assert mnist.mean.item() == pytest.approx(0.1307, abs=5e-4)
    assert mnist.std.item() == pytest.approx(0.3081, abs=5e-4)


def test_seed_changes_the_validation_split_of_mnist_only(mnist):
    other_split = load_or_skip("mnist", seed=1)
    assert other_split.indices["test"].equal(mnist.indices["test"])
    assert not other_split.indices["validation"].equal(mnist.indices["validation"])
    counts, other_counts = mnist.class_counts["validation"], other_split.class_counts["validation"]
    assert all(abs(a - b) <= 1 for a, b in zip(other_counts, counts, strict=True))
    assert other_split.fingerprint == mnist.fingerprint


def test_fashion_mnist_has_its_published_counts():
    data = load_or_skip("fashion_mnist")
    assert count_train_validation(data) == [6000] * 10
    assert data.class_counts["test"] == (1000,) * 10
    assert [data.class_names[k] for k in data.test.columns["y"][:4]] == ["ankle boot", "pullover", "trouser", "trouser"]
    assert data.mean.item() == pytest.approx(0.2860, abs=1e-3)
    assert data.std.item() == pytest.approx(0.3530, abs=1e-3)


def test_cifar10_has_its_published_counts():
    data = load_or_skip("cifar10")
    assert data.shape == (3, 32, 32)
    assert count_train_validation(data) == [5000] * 10
    assert data.class_counts["test"] == (1000,) * 10
    split_name = next(s for s in SPLITS if 0 in data.indices[s])
    row = (data.indices[split_name] == 0).nonzero()[0, 0]
    assert data.class_names[data.split(split_name).columns["y"][row]] == "frog"
    assert data.split(split_name).columns["x"][row, :, 0, 0].tolist() == [59, 62, 63]
    assert (255 * data.mean.flatten()).tolist() == pytest.approx([125.307, 122.950, 113.865], abs=0.3)


def test_adult_has_its_published_counts():
    data = load_or_skip("adult")
    assert data.class_names == ("<=50K", ">50K")
    assert count_train_validation(data) == [24_720, 7_841]
    assert data.class_counts["test"] == (12_435, 3_846)
    assert data.target == "income"
    assert data.train.batch(torch.arange(100))["x"].isfinite().all()


@pytest.mark.slow
def test_imdb_keeps_its_published_test_split(tmp_path, monkeypatch):
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path))
    data = load_or_skip("imdb")
    monkeypatch.setattr(public, "read_reviews", None)  # the second time, they are not read again
    other_split = load_or_skip("imdb", seed=1)
    assert other_split.fingerprint == data.fingerprint
    assert other_split.feature_names == data.feature_names
    assert data.kind == "text"
    assert count_train_validation(data) == [12_500, 12_500]
    assert data.class_counts["test"] == (12_500, 12_500)
    assert data.indices["test"].equal(torch.arange(25_000, 50_000))
    assert data.shape == (10_000,)
    assert "br" not in data.feature_names
    assert {"the", "excellent", "awful"} <= set(data.feature_names)
