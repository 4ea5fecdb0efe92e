"""`didact sweep`: ranked by a metric that no axis enters (Gaba, table 9.1); damaged results are refused."""

import json

import pytest

from didact.cli.main import main
from didact.registry import RECIPES
from didact.training.sweeps.sweep import choose_metric


def test_sweep_of_beta_ranks_vaes_by_the_elbo(workdir, capsys):
    sizes = ["--hidden", "16", "--latent-dim", "4", "--epochs", "3", "--batch-size", "256"]
    words = ["sweep", "vae", "beta=0.5,10", *sizes]
    assert main(words) == 0
    out, stderr = capsys.readouterr()
    assert "validation elbo" in out and "validation reconstruction" in out and "validation kl" in out
    assert stderr.count("validation elbo") == stderr.count("reconstruction") == stderr.count("kl ") == 2
    assert main([*words, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["metric"] == "elbo"
    for row in result["table"]:
        assert abs(row["validation"] + row["reconstruction"] + row["kl"]) < 1e-3
    low_beta, high_beta = result["table"]
    # what beta trades
    assert low_beta["kl"] > 2 * high_beta["kl"] and low_beta["reconstruction"] < high_beta["reconstruction"]
    text = (workdir / result["report"]).read_text(encoding="utf-8")
    assert "validation KL" in text and "ranked on validation by ELBO: higher is better" in text
    assert main([*words, "--metric", "psnr", "--json"]) == 0 and json.loads(capsys.readouterr().out)["metric"] == "psnr"


def test_choose_metric_takes_the_monitored_metric():
    rows = [{"validation": {"loss": 1.0, "accuracy": 0.5}, "monitor": ["accuracy", "max"]}]
    assert choose_metric(rows, None) == choose_metric(rows, None, ("elbo",)) == "accuracy"
    assert RECIPES["mlp"].comparison_metrics == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"cell": {"lr": 0.01}, "seed": 0}', "lacks run, validation, test"),
        (
            '{"cell": {"lr": 0.01}, "seed": "0", "run": "r", "validation": {}, "test": {}}',
            "seed must be a count, got '0'",
        ),
        ("[1]", "it must be an object, got [1]"),
        ("{", "cannot be read"),
    ],
)
def test_damaged_sweep_file_is_refused_in_one_line(workdir, capsys, line, message):
    words = ["sweep", "mlp", "lr=1e-2", "--data", "iris", "--steps", "2", "--hidden", "4", "--device", "cpu"]
    assert main(words) == 0
    (path,) = workdir.glob("runs/sweeps/*/sweep.jsonl")
    path.write_text(line + "\n")
    capsys.readouterr()
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and message in err and "delete it to sweep anew" in err
