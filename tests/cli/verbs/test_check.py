"""`didact check`: verdicts, filters, the HTML page."""

import json

import pytest

from didact.charts.html import to_html
from didact.claims.registry import select_statements
from didact.claims.typeset import typeset
from didact.cli.main import main


@pytest.fixture(autouse=True)
def no_records(monkeypatch):
    """Whatever tables have been measured since."""
    monkeypatch.setattr("didact.claims.registry.load_records", dict)


def test_check_json_lists_verdicts(capsys):
    assert main(["check", "C1.6", "C1.14", "C1.20", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(r["id"], r["verdict"]) for r in rows] == [("C1.6", "holds"), ("C1.14", "wrong"), ("C1.20", "not measured")]
    assert rows[0]["stated"] == "235,146" and rows[0]["value"] == 235_146
    assert rows[1]["value"] == 785 * 1024 + 1025 * 10
    assert rows[2]["note"] == "didact reproduce 1.6"


def test_check_table_says_what_is_right(capsys):
    assert main(["check", "C2.9", "C4.5"]) == 0
    out = capsys.readouterr().out
    assert "wrong" in out and "conditional" in out and "outside the root" in " ".join(out.split())
    assert "2 claims: 1 wrong, 1 conditional" in out


def test_check_filters_claims(capsys):
    assert main(["check", "--course", "gaba", "--chapter", "4", "--kind", "printed output", "--wrong", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["id"] for r in rows] == ["C4.13", "C4.18", "C4.19", "C4.20", "C4.21"]


def test_select_statements_by_the_first_word_of_a_kind():
    kinds = {
        word: {s.kind for s in select_statements(kind=word)}
        for word in ("exact", "printed", "Measured", "measured-table")
    }
    assert kinds["exact"] == {"exact arithmetic"} and kinds["printed"] == {"printed output"}
    assert kinds["Measured"] == {"measured", "measured table", "measured table (literature)"}
    assert kinds["measured-table"] == {"measured table", "measured table (literature)"}
    assert {s.chapter for s in select_statements(chapter="1")} == {"1"}


def test_check_accepts_lowercase_ids_and_finds_nothing_wrong(capsys):
    assert main(["check", "c1.6", "--wrong"]) == 0
    assert capsys.readouterr().out.startswith("nothing wrong among 1 claim: 1 holds")


def test_check_shows_both_sides(capsys):
    """CL41: of eight pairs of sixteen columns i runs to 15 by the page, to 7 in truth."""
    assert main(["check", "CL41", "CV29", "--json"]) == 0
    computed_texts = [row["computed"] for row in json.loads(capsys.readouterr().out)]
    assert computed_texts == ["15 against 7; corrected 7 on both sides", "75 against 600; corrected 600 on both sides"]


def test_claim_without_a_value_does_not_look_empty(tmp_path, capsys):
    """C1.1 is a claim without a value: the table shows the formula that is checked, the page leaves the line out."""
    (s,) = select_statements(["C1.1"])
    assert not s.has_value
    assert main(["check", "C1.1"]) == 0
    assert "—" not in capsys.readouterr().out
    assert main(["check", "C1.1", "--html", str(tmp_path / "a.html")]) == 0
    assert (
        ": 1 claim: 1 holds" in capsys.readouterr().err and "<dt>stated</dt>" not in (tmp_path / "a.html").read_text()
    )


@pytest.mark.parametrize(
    ("source", "html"),
    [
        ("x_{t−1} + 4d_h·2^n and e^{−x}", "x<sub>t−1</sub> + 4d<sub>h</sub>·2<sup>n</sup> and e<sup>−x</sup>"),
        ("2^{D_in}, J_{f_{d−1}}", "2<sup>D<sub>in</sub></sup>, J<sub>f<sub>d−1</sub></sub>"),
        (
            "W_hhᵀ, σ_d², ᾱ_t, ‖ℓ‖_∞, PE_pos, x_<t",
            "W<sub>hh</sub>ᵀ, σ<sub>d</sub>², ᾱ<sub>t</sub>, ‖ℓ‖<sub>∞</sub>, PE<sub>pos</sub>, x<sub>&lt;t</sub>",
        ),
        (
            "∏_{j=k+1}^t, e^−|z|, γ^⌊t/T⌋, X^†y",
            "∏<sub>j=k+1</sub><sup>t</sup>, e<sup>−|z|</sup>, γ<sup>⌊t/T⌋</sup>, X<sup>†</sup>y",
        ),
        ("h^(l−1), t^(−1/d)", "h<sup>(l−1)</sup>, t<sup>−1/d</sup>"),
        (
            "1e-16, 4.5e-05, N=1e6..1e9, -0.17, commit 58e3712, ResNet-18",
            "10<sup>−16</sup>, 4.5\xa0×\xa010<sup>−5</sup>, N=10<sup>6</sup>..10<sup>9</sup>, −0.17, commit 58e3712, "
            "ResNet-18",
        ),
        ("max_lr of torch.optim.SGD", "<code>max_lr</code> of <code>torch.optim.SGD</code>"),
        (
            "StepLR(step_size=100, gamma=0.1), y_hat",
            "<code>StepLR(step_size=100, gamma=0.1)</code>, <code>y_hat</code>",
        ),
        ("x.detach() and f(x)", "<code>x.detach()</code> and f(x)"),
        ("torch.randint(0,3,(8,)) excludes 3", "<code>torch.randint(0,3,(8,))</code> excludes 3"),
    ],
)
def test_typeset_gives_html_formulas(source, html):
    assert to_html(typeset(source)) == html


def test_check_counts_a_claim_named_twice_once(capsys):
    assert main(["check", "C4.8", "C4.8", "C1.6"]) == 0
    assert "2 claims: 2 hold" in capsys.readouterr().out


def test_check_refuses_an_unwritable_page_before_computing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("didact.claims.registry.check_claim", lambda id: pytest.fail("computed before it looked"))
    assert main(["check", "C1.6", "--html", str(tmp_path / "nowhere" / "x.html")]) == 2
    stderr = capsys.readouterr().err
    assert "--html expects a file in a folder that can be written to" in stderr and stderr.count("\n") == 1
    assert main(["check", "C1.6", "--html", str(tmp_path)]) == 2


def test_page_shows_the_source_of_a_claim_and_its_helpers(tmp_path, capsys):
    path = tmp_path / "claims.html"
    assert main(["check", "CE06", "C11.13", "C4.2", "C4.8", "C6.12", "--html", str(path)]) == 0
    page = path.read_text(encoding="utf-8")
    assert "@claim(&quot;CE06&quot;, Equal" in page and "def derivative_of_the_sigmoid" in page
    assert "C1.1&quot;" not in page
    assert "def count_parameters(module: nn.Module)" in page, "from the module that all checks share"
    assert "def width_that_replaces_depth" in page
    assert "def _saw" in page and "def count_linear_pieces" in page, "helpers are shown"
    assert (
        'id="only-holds"' in page
        and "#only-holds:checked" in page
        and "1 holds" in page
        and "2 hold" in page
        and "2 holds" not in page
    )


@pytest.mark.parametrize(("args", "expected"), [
    (["C4.88"], "no claim named 'C4.88'; did you mean 'C4.8'?"),
    (["--course", "gabba"], "no course named 'gabba'; did you mean 'gaba'?"),
    (["--kind", "printed outpt"], "no kind named 'printed outpt'; did you mean 'printed output'?"),
    (["--chapter", "11.2"], "--chapter expects the number of a chapter, got '11.2'; did you mean '11'?"),
    (["--course", "lhotte", "--chapter", "12"], "no claim is of that course, chapter and kind at once"),
])
def test_check_errors_are_one_line(capsys, args, expected):
    assert main(["check", *args]) == 2
    captured = capsys.readouterr()
    assert expected in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_page_is_one_file(tmp_path, capsys):
    path = tmp_path / "claims.html"
    assert main(["check", "C1.6", "C2.7", "C4.5", "C1.20", "C4.27", "--html", str(path)]) == 0
    page = path.read_text(encoding="utf-8")
    for piece in (
        "235,146",
        "holds with a condition",
        "odd kernels",
        "def parameters_by_formula",
        "didact reproduce 1.6",
        "chapter 4",
    ):
        assert piece in page
    assert [page.count(f'id="gaba-{chapter}"') for chapter in (1, 2, 4)] == [1, 1, 1], "a chapter stands once"
    assert "http" not in page.replace("http://www.w3.org", "") and "src=" not in page


def test_answers_are_counted_apart_from_checks(tmp_path, capsys):
    path = tmp_path / "claims.html"
    assert main(["check", "C1.6", "C9.8", "C4.27"]) == 0
    assert "3 claims: 1 holds, 2 answered" in capsys.readouterr().out
    assert main(["check", "C9.8", "C4.27", "--json"]) == 0
    assert [(r["verdict"], bool(r["value"])) for r in json.loads(capsys.readouterr().out)] == [("answered", True)] * 2
    assert main(["check", "C1.6", "C9.8", "--html", str(path)]) == 0
    page = path.read_text(encoding="utf-8")
    assert 'id="only-answered"' in page and "@answer(&quot;C9.8&quot;)" in page and 'class="claim answered"' in page
