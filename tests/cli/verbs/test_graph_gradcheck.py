"""`didact graph` and `didact gradcheck`."""

import json
import xml.etree.ElementTree as ET

import pytest

from didact.cli.main import main


def test_graph_of_the_first_course_example(workdir, capsys):
    assert main(["graph", "(x+y)*z", "x=-2", "y=5", "z=-4", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["value"] == -12 and result["gradients"] == {"x": -4, "y": -4, "z": 3}
    svg_text = (workdir / "graph.svg").read_text()
    assert ET.fromstring(svg_text).tag.endswith("svg") and "-12" in svg_text
    assert main(["graph", "(x+y)*z", "x=-2", "y=5", "z=-4", "--output", "other.svg"]) == 0
    assert "d/dz = 3.0000" in capsys.readouterr().out and (workdir / "other.svg").exists()


def test_gradcheck_compares_four_ways_to_differentiate(capsys):
    assert main(["gradcheck", "x*sin(y)+exp(x)/y", "x=2", "y=0.5", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["passed"] and set(result["rows"][0]) == {"name", "numerical", "symbolic", "forward", "reverse"}
    assert main(["gradcheck", "scratch_mlp", "--num-samples", "2"]) == 0
    assert "largest difference" in capsys.readouterr().out


def test_engines_help_lists_the_scratch_recipes(capsys):
    assert main(["engines", "--help"]) == 0
    recipe_names = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]
    assert sorted(recipe_names) == ["scratch_gpt", "scratch_lenet", "scratch_manual", "scratch_mlp", "scratch_rnn"]


@pytest.mark.parametrize(("words", "message"), [
    (["graph", "x+", "x=1"], "cannot read 'x+'"),
    (["graph", "x*q", "x=1"], "no value for 'q'"),
    (["graph", "x*2", "x=one"], "a value is written name=number, got 'x=one'"),
    (["graph", "__import__('os')", "x=1"], "no function '__import__'"),
    (["graph", "x", "x=1", "--output", "no/such/folder.svg"], "cannot write"),
    (["graph", "x", "x=1", "--output", "foo.bmp"], "--output expects a file that ends in .svg, got foo.bmp"),
    (["gradcheck", "log(x)", "x=-1"], "log"),
    (["gradcheck", "mlp"], "has no network on the NumPy engine"),
    (["gradcheck", "scratch_lent"], "did you mean 'scratch_lenet'?"),
])
def test_graph_and_gradcheck_refuse_bad_input_in_one_line(words, message, workdir, capsys):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("didact: ") and err.count("\n") == 1 and message in err
