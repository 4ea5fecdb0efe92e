"""Public sets: where files are found, how they are checked, and that they hold what is published of them."""

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

from didact.data import public
from didact.data.core import SPLITS
from didact.data.fetch import SOURCES, File, Source, cached, fetch, find, locate, missing, read
from didact.data.readers import cifar, content, idx, members
from didact.errors import UsageError

RAW = b"the content of a file\n" * 50
FORMS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def a_file(raw=RAW, name="some-file", url="http://127.0.0.1:1/some-file.gz", **more):
    return File(name, hashlib.sha256(raw).hexdigest(), url, **more)


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The set's own folder, the common one and the cache, all empty."""
    monkeypatch.setenv("DIDACT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    own, common, cache = tmp_path / "data" / "toy", tmp_path / "data", tmp_path / "cache" / "toy"
    own.mkdir(parents=True)
    cache.mkdir(parents=True)
    return own, common, cache


@pytest.fixture
def serve(tmp_path):
    """serve(path, body) -> url, from a server of this machine; `claimed` is a Content-Length that may be a lie."""
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

    def offer(path, body, claimed=None):
        bodies[path] = body, len(body) if claimed is None else claimed
        return f"http://127.0.0.1:{server.server_port}{path}"

    yield offer
    server.shutdown()
    thread.join()
    server.server_close()


def test_files_are_found_in_the_order_promised(places):
    file = a_file()
    for folder in reversed(places):  # each found place beats the ones filled before it
        assert find("toy", file) != folder / "some-file.xz"
        (folder / "some-file.xz").write_bytes(lzma.compress(RAW))
        assert find("toy", file) == locate("toy", file) == folder / "some-file.xz"


def test_without_a_data_folder_the_cache_serves(places, monkeypatch):
    own, _, cache = places
    (own / "some-file").write_bytes(RAW)
    monkeypatch.delenv("DIDACT_DATA")
    assert find("toy", a_file()) is None
    (cache / "some-file").write_bytes(RAW)
    assert find("toy", a_file()) == cache / "some-file"


def test_the_cache_is_in_the_home_folder_unless_told(places, tmp_path, monkeypatch):
    monkeypatch.delenv("DIDACT_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".cache" / "didact" / "toy"
    folder.mkdir(parents=True)
    (folder / "some-file.gz").write_bytes(gzip.compress(RAW))
    assert find("toy", a_file()) == folder / "some-file.gz"


@pytest.mark.parametrize("suffix", FORMS)
def test_plain_gz_and_xz_are_read_alike(places, suffix):
    (places[0] / f"some-file{suffix}").write_bytes(FORMS[suffix](RAW))
    assert read("toy", [a_file()]) == [RAW]


def test_a_gz_that_the_browser_unpacked_is_read_too(places):
    (places[0] / "some-file.gz").write_bytes(RAW)
    assert read("toy", [a_file()]) == [RAW]


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_file_is_named_with_what_to_do(places, suffix, damage):
    path, raw = places[0] / f"some-file{suffix}", bytearray(FORMS[suffix](RAW))
    if damage == "cut":
        raw = raw[: len(raw) // 2]
    else:
        raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(raw)
    with pytest.raises(UsageError) as error:
        read("toy", [a_file()])
    assert str(path) in str(error.value)
    assert "damaged" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("raw", [b"", RAW[:-1], RAW + b"x"])
def test_other_content_is_refused(places, raw):
    (places[0] / "some-file").write_bytes(raw)
    with pytest.raises(UsageError, match=r"is not toy's some-file .expected .*replace it"):
        read("toy", [a_file()])


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=f"cannot read {tmp_path}"):
        content(tmp_path)


def test_download_goes_to_the_cache_checked_and_told(places, serve):
    cache = places[2]
    file = a_file(url=serve("/home/some-file.gz", gzip.compress(RAW)))
    told = []
    path = locate("toy", file, lambda *step: told.append(step))
    assert path == cache / "some-file.gz"
    assert told[-1] == ("some-file.gz", path.stat().st_size, path.stat().st_size)
    assert [p.name for p in cache.iterdir()] == ["some-file.gz"], "no part file stays"
    assert read("toy", [replace(file, url="http://127.0.0.1:1/some-file.gz")]) == [RAW], "and is not fetched again"


def test_a_download_by_file_url(places, tmp_path):
    (tmp_path / "some-file.gz").write_bytes(gzip.compress(RAW))
    assert read("toy", [a_file(url=(tmp_path / "some-file.gz").as_uri())]) == [RAW]


@pytest.mark.parametrize("case", ["refused", "absent", "other", "damaged", "short", "archive"])
def test_a_failed_download_says_which_file_goes_where_and_leaves_nothing(places, serve, case):
    own, _, cache = places
    packed = gzip.compress(RAW)
    file = {
        "refused": lambda: a_file(),
        "absent": lambda: a_file(url=serve("/other", b"").replace("other", "some-file.gz")),
        "other": lambda: a_file(url=serve("/some-file.gz", gzip.compress(b"other"))),
        "damaged": lambda: a_file(url=serve("/some-file.gz", packed[:-9])),
        "short": lambda: a_file(url=serve("/some-file.gz", packed, claimed=len(packed) + 10)),
        "archive": lambda: a_file(url=serve("/some-file.gz", packed), archive="0" * 64),
    }[case]()
    with pytest.raises(UsageError) as error:
        locate("toy", file)
    message = str(error.value)
    assert message.startswith("toy needs some-file.gz")
    assert f"put it into {own}" in message
    assert file.url in message
    assert "\n" not in message
    reasons = {"refused": "refused", "absent": "Not Found", "damaged": "damaged", "short": "bytes came"}
    assert reasons.get(case, f"expected {(file.archive or file.sha256)[:12]}") in message
    assert not list(cache.iterdir())


def test_a_cache_that_cannot_be_written_is_said(tmp_path, monkeypatch, serve):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path / "file"))
    monkeypatch.delenv("DIDACT_DATA", raising=False)
    with pytest.raises(UsageError, match=r"set DIDACT_DATA to a folder that holds toy/"):
        locate("toy", a_file(url=serve("/some-file.gz", gzip.compress(RAW))))


def test_fetch_gets_what_is_missing(places, serve):
    files = [a_file(b"one", "one", serve("/one", b"one")), a_file(b"two", "two", serve("/two.gz", b"not asked for"))]
    (places[1] / "two.xz").write_bytes(lzma.compress(b"two"))
    toy = Source("toy", "table", "none", "", "", lambda: None, tuple(files))
    assert missing(toy) == (files[0],)
    fetch(toy)
    assert missing(toy) == ()
    assert [p.name for p in places[2].iterdir()] == ["one"]


def test_what_takes_long_is_made_once(places):
    path = places[0] / "some-file"
    path.write_bytes(RAW)
    calls = []

    def make():
        calls.append(1)
        return {"x": torch.arange(6).reshape(2, 3)}

    def count(version="1"):
        assert cached("toy", path, version, make)["x"].equal(torch.arange(6).reshape(2, 3))
        return len(calls)

    assert (count(), count()) == (1, 1)
    (kept,) = places[2].iterdir()
    whole = kept.read_bytes()
    for damaged in (whole[:-1], b"", b"x" * 100):
        kept.write_bytes(damaged)
        before = len(calls)
        assert (count(), count()) == (before + 1, before + 1), "made anew, and written again"
    assert kept.read_bytes() == whole
    assert count("2") == 5, "another version"
    path.write_bytes(RAW + RAW)
    assert count() == 6, "another file"


def test_a_cache_that_cannot_be_written_keeps_nothing(places, tmp_path, monkeypatch):
    (places[0] / "some-file").write_bytes(RAW)
    monkeypatch.setenv("DIDACT_CACHE", str(places[0] / "some-file"))
    assert cached("toy", places[0] / "some-file", "1", lambda: {"x": torch.ones(2)})["x"].tolist() == [1, 1]


def tar(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, raw in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    return out.getvalue()


def test_files_come_out_of_their_archive(places, serve):
    entries = {"box/a.bin": b"A" * 9000, "box/readme": b"no", "box/b.bin": b"B" * 700}
    packed = tar(entries)
    total = hashlib.sha256(packed).hexdigest()
    url = serve("/box.tar.gz", packed)
    files = [a_file(entries[name], name, url, archive=total) for name in ("box/b.bin", "box/a.bin")]
    assert read("toy", files) == [entries["box/b.bin"], entries["box/a.bin"]]
    (places[0] / "a.bin").write_bytes(entries["box/a.bin"])  # unpacked, without its folder
    assert find("toy", files[1]) == places[0] / "a.bin"
    (places[0] / "box").mkdir()
    (places[0] / "box" / "a.bin").write_bytes(entries["box/a.bin"])
    assert find("toy", files[1]) == places[0] / "box" / "a.bin"
    assert read("toy", files) == [entries["box/b.bin"], entries["box/a.bin"]]


def test_a_cut_archive_is_named(places):
    (places[0] / "box.tar.gz").write_bytes(tar({"box/a.bin": bytes(range(256)) * 99})[:-40])
    with pytest.raises(UsageError, match=r"box\.tar\.gz is damaged or cut short"):
        members(places[0] / "box.tar.gz", lambda name: True)


def test_idx_is_read_as_lecun_wrote_it():
    raw = b"\0\0\x08\x03" + struct.pack(">III", 2, 3, 5) + bytes(range(30))
    assert idx(raw).equal(torch.arange(30, dtype=torch.uint8).reshape(2, 3, 5))
    for wrong in (b"", b"\0\0", b"\0\0\x08\0", raw[:-1], raw + b"0", b"PK" + raw, raw[:7]):
        with pytest.raises(UsageError, match="not an idx file"):
            idx(wrong)


def test_cifar_records_are_planes():
    record = bytes([7]) + bytes([1] * 1024 + [2] * 1024 + [3] * 1024)
    x, y = cifar(record * 2)
    assert y.tolist() == [7, 7]
    assert tuple(x.shape) == (2, 3, 32, 32)
    assert [x[1, c].unique().tolist() for c in range(3)] == [[1], [2], [3]]
    for wrong in (b"", record[:-1]):
        with pytest.raises(UsageError, match="3073"):
            cifar(wrong)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_small_mnist_is_the_same_in_every_form(places, seed):
    generator = torch.Generator().manual_seed(3)
    raws = []
    for n in (60, 20):
        x = torch.randint(256, (n, 4, 3), generator=generator, dtype=torch.uint8)
        raws.append(b"\0\0\x08\x03" + struct.pack(">III", n, 4, 3) + x.numpy().tobytes())
        raws.append(b"\0\0\x08\x01" + struct.pack(">I", n) + bytes(i % 2 for i in range(n)))
    files = [a_file(raw, name) for raw, name in zip(raws, public.IDX, strict=True)]
    loaded = []
    for suffix, pack in FORMS.items():
        for path in places[0].iterdir():
            path.unlink()
        for raw, name in zip(raws, public.IDX, strict=True):
            (places[0] / (name + suffix)).write_bytes(pack(raw))
        loaded.append(public.idx_images("toy", files, ("even", "odd"), "parity", seed))
    assert len({data.fingerprint for data in loaded}) == 1
    assert loaded[0].shape == (1, 4, 3)
    assert loaded[0].indices["test"].equal(torch.arange(60, 80))
    assert loaded[0].counts == {"train": (27, 27), "validation": (3, 3), "test": (10, 10)}


def test_reviews_come_from_the_archive_in_the_order_of_their_numbers(places, monkeypatch):
    packed = tar({
        "aclImdb/test/neg/0_3.txt": b"d",
        "aclImdb/train/neg/0_1.txt": b"c",
        "aclImdb/train/pos/10_9.txt": b"b\tB",
        "aclImdb/train/pos/9_7.txt": "a<br />é".encode(),
        "aclImdb/train/unsup/0_0.txt": b"no",
        "aclImdb/train/urls_pos.txt": b"no",
    })  # fmt: skip
    path = places[1] / "aclImdb_v1.tar.gz"
    path.write_bytes(packed)
    assert find("imdb", public.IMDB) == path
    with pytest.raises(UsageError, match=r"aclImdb_v1\.tar\.gz is not what http"):
        public.reviews(path)
    monkeypatch.setattr(public, "IMDB", replace(public.IMDB, archive=hashlib.sha256(packed).hexdigest()))
    numbered = [("train", "pos", "a<br />é"), ("train", "pos", "b\tB"), ("train", "neg", "c"), ("test", "neg", "d")]
    assert public.reviews(path) == numbered


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10", "adult", "imdb"])
def test_public_sets_tell_their_files_without_loading(name):
    told = SOURCES[name]
    assert told.licence and told.summary
    assert all(len(file.sha256) == 64 and file.url.startswith("http") for file in told.files)


def load(name, seed=0):
    absent = missing(SOURCES[name])
    if absent:
        pytest.skip(f"{name} needs {absent[0].name} and what goes with it: set DIDACT_DATA to the folder that holds it")
    return SOURCES[name].load(seed)


def totals(data):
    return [sum(c) for c in zip(*(data.counts[s] for s in ("train", "validation")), strict=True)]


@pytest.fixture(scope="module")
def mnist():
    return load("mnist")


def test_mnist_is_mnist(mnist):
    assert mnist.shape == (1, 28, 28)
    assert totals(mnist) == [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert mnist.counts["test"] == (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)
    assert mnist.indices["test"].equal(torch.arange(60_000, 70_000))
    assert len(mnist.validation) == 6_000
    assert mnist.test.columns["x"].dtype == torch.uint8
    assert mnist.test.columns["y"][:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    first = next(s for s in SPLITS if 0 in mnist.indices[s])  # the 5 that heads the training file
    row = (mnist.indices[first] == 0).nonzero()[0, 0]
    assert mnist.split(first).columns["y"][row] == 5
    assert mnist.split(first).columns["x"][row, 0, 5, 12:18].tolist() == [3, 18, 18, 18, 126, 136]
    assert mnist.mean.item() == pytest.approx(0.1307, abs=5e-4)
    assert mnist.std.item() == pytest.approx(0.3081, abs=5e-4)


def test_another_seed_cuts_another_validation_and_the_same_test(mnist):
    other = load("mnist", seed=1)
    assert other.indices["test"].equal(mnist.indices["test"])
    assert not other.indices["validation"].equal(mnist.indices["validation"])
    assert all(abs(a - b) <= 1 for a, b in zip(other.counts["validation"], mnist.counts["validation"], strict=True))
    assert other.fingerprint == mnist.fingerprint


def test_fashion_mnist_is_fashion_mnist():
    data = load("fashion_mnist")
    assert totals(data) == [6000] * 10
    assert data.counts["test"] == (1000,) * 10
    assert [data.labels[k] for k in data.test.columns["y"][:4]] == ["ankle boot", "pullover", "trouser", "trouser"]
    assert data.mean.item() == pytest.approx(0.2860, abs=1e-3)
    assert data.std.item() == pytest.approx(0.3530, abs=1e-3)


def test_cifar10_is_cifar10():
    data = load("cifar10")
    assert data.shape == (3, 32, 32)
    assert totals(data) == [5000] * 10
    assert data.counts["test"] == (1000,) * 10
    first = next(s for s in SPLITS if 0 in data.indices[s])
    row = (data.indices[first] == 0).nonzero()[0, 0]
    assert data.labels[data.split(first).columns["y"][row]] == "frog"
    assert data.split(first).columns["x"][row, :, 0, 0].tolist() == [59, 62, 63]
    assert (255 * data.mean.flatten()).tolist() == pytest.approx([125.307, 122.950, 113.865], abs=0.3)


def test_adult_is_the_census():
    data = load("adult")
    assert data.labels == ("<=50K", ">50K")
    assert totals(data) == [24_720, 7_841]
    assert data.counts["test"] == (12_435, 3_846)
    assert data.target == "income"
    assert data.train.batch(torch.arange(100))["x"].isfinite().all()


@pytest.mark.slow
def test_imdb_keeps_its_own_test_reviews(tmp_path, monkeypatch):
    monkeypatch.setenv("DIDACT_CACHE", str(tmp_path))
    data = load("imdb")
    monkeypatch.setattr(public, "reviews", None)  # the second time, they are not read again
    again = load("imdb", seed=1)
    assert again.fingerprint == data.fingerprint
    assert again.names == data.names
    assert data.kind == "text"
    assert totals(data) == [12_500, 12_500]
    assert data.counts["test"] == (12_500, 12_500)
    assert data.indices["test"].equal(torch.arange(25_000, 50_000))
    assert data.shape == (10_000,)
    assert "br" not in data.names
    assert {"the", "excellent", "awful"} <= set(data.names)
