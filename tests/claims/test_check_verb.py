"""didact check, as a person types it."""

import json

import pytest

from didact.cli.main import main


@pytest.fixture(autouse=True)
def nothing_measured(monkeypatch):
    """Whatever tables have been measured since."""
    monkeypatch.setattr("didact.claims.core.kept", dict)


def test_json(capsys):
    assert main(["check", "C1.6", "C1.14", "C1.20", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(r["id"], r["verdict"]) for r in rows] == [("C1.6", "holds"), ("C1.14", "wrong"), ("C1.20", "not measured")]
    assert rows[0]["stated"] == "235,146" and rows[0]["value"] == 235_146
    assert rows[1]["value"] == 785 * 1024 + 1025 * 10
    assert rows[2]["note"] == "didact reproduce 1.6"


def test_the_table_says_what_is_right(capsys):
    assert main(["check", "C2.9", "C4.5"]) == 0
    out = capsys.readouterr().out
    assert "wrong" in out and "conditional" in out and "outside the root" in " ".join(out.split())
    assert "2 claims: 1 wrong, 1 conditional" in out


def test_filters(capsys):
    assert main(["check", "--course", "gaba", "--chapter", "4", "--kind", "printed output", "--wrong", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["id"] for r in rows] == ["C4.13", "C4.18", "C4.19", "C4.20", "C4.21"]


def test_a_claim_named_twice_is_one(capsys):
    assert main(["check", "C4.8", "C4.8", "C1.6"]) == 0
    assert "2 claims: 2 hold" in capsys.readouterr().out


def test_a_page_that_cannot_be_written_is_refused_first(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("didact.claims.core.run", lambda id: pytest.fail("computed before it looked"))
    assert main(["check", "C1.6", "--html", str(tmp_path / "nowhere" / "x.html")]) == 2
    told = capsys.readouterr().err
    assert "--html expects a file in a folder that can be written to" in told and told.count("\n") == 1
    assert main(["check", "C1.6", "--html", str(tmp_path)]) == 2


def test_the_page_shows_its_own_claim_and_what_it_calls(tmp_path, capsys):
    path = tmp_path / "claims.html"
    assert main(["check", "CE31", "C11.13", "C4.2", "C4.8", "--html", str(path)]) == 0
    page = path.read_text(encoding="utf-8")
    assert "@claim(&quot;CE31&quot;, Same" in page and "def bias_correction" in page and "C2.12" not in page
    assert "def parameters(module: nn.Module)" in page, "from the module that all checks share"
    assert "def width_that_replaces_depth" in page and "def saw" in page and "def pieces" in page, "helpers are shown"
    assert 'id="only-holds"' in page and "#only-holds:checked" in page and "1 holds" in page and "2 hold" in page and "2 holds" not in page


@pytest.mark.parametrize(("words", "expected"), [
    (["C4.88"], "no claim named 'C4.88'; did you mean 'C4.8'?"),
    (["--course", "gabba"], "no course named 'gabba'; did you mean 'gaba'?"),
    (["--kind", "printed"], "no kind named 'printed'; did you mean"),
    (["--course", "lhotte", "--chapter", "12"], "no claim is of that course, chapter and kind at once"),
])
def test_mistakes_are_told_in_one_line(capsys, words, expected):
    assert main(["check", *words]) == 2
    captured = capsys.readouterr()
    assert expected in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_the_page_is_one_file(tmp_path, capsys):
    path = tmp_path / "claims.html"
    assert main(["check", "C1.6", "C2.7", "C4.5", "C1.20", "C4.27", "--html", str(path)]) == 0
    page = path.read_text(encoding="utf-8")
    for piece in ("235,146", "holds with a condition", "odd kernels", "def parameters_by_formula", "didact reproduce 1.6", "chapter 4"):
        assert piece in page
    assert [page.count(f'id="gaba-{chapter}"') for chapter in (1, 2, 4)] == [1, 1, 1], "a chapter stands once"
    assert "http" not in page.replace("http://www.w3.org", "") and "src=" not in page
