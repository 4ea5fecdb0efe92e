"""A sweep over something that enters the loss is ranked by what does not hold it; reconstruction and KL stand beside (Gaba, table 9.1)."""

import json

from didact.cli.main import main
from didact.registry import RECIPES
from didact.train.sweep import choose_metric


def test_a_vae_is_compared_by_its_bound(here, capsys):
    words = ["sweep", "vae", "beta=0.5,10", "--widths", "16", "--latent", "4", "--epochs", "3", "--batch", "256"]
    assert main(words) == 0
    out, told = capsys.readouterr()
    assert "validation elbo" in out and "validation reconstruction" in out and "validation kl" in out
    assert told.count("validation elbo") == told.count("reconstruction") == told.count("kl ") == 2
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["metric"] == "elbo"
    for row in found["table"]:
        assert abs(row["validation"] + row["reconstruction"] + row["kl"]) < 1e-3
    loose, tight = found["table"]
    assert loose["kl"] > 2 * tight["kl"] and loose["reconstruction"] < tight["reconstruction"]      # what beta trades
    text = (here / found["report"]).read_text(encoding="utf-8")
    assert "validation KL" in text and "judged on validation by ELBO: higher is better" in text
    assert main([*words, "--metric", "psnr", "--json"]) == 0 and json.loads(capsys.readouterr().out)["metric"] == "psnr"


def test_others_by_what_they_watch():
    rows = [{"validation": {"loss": 1.0, "accuracy": 0.5}, "watch": ["accuracy", "higher"]}]
    assert choose_metric(rows, None) == choose_metric(rows, None, ("elbo",)) == "accuracy"
    assert RECIPES["mlp"].compare == ()
