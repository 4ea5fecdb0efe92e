"""A newcomer who knows PyTorch finds these by file name alone: the file is there, and what it is named for is in it."""

from pathlib import Path

import pytest

import didact

PACKAGE = Path(didact.__file__).parent

LOOK_UPS = {
    "KV cache": ("kv_cache.py", "class KVCache"),
    "top-p sampling": ("top_k_top_p.py", "top_p"),
    "DDIM step": ("ddim.py", "eta"),
    "gradient clipping": ("gradient_clipping.py", "clip_grad_norm_"),
    "early stopping": ("early_stopping.py", "patience"),
    "confusion matrix": ("confusion_matrix.py", "def confusion_matrix"),
    "cross-entropy of language models": ("chunked_cross_entropy.py", "def chunked_cross_entropy"),
    "image folder reader": ("image_folder.py", "def load_image_folder"),
    "masked-LM masking": ("masked_lm.py", "mask"),
    "parallel sweep": ("parallel_sweep.py", "def run_parallel"),
    "checkpoint writing": ("checkpoint.py", "def save_checkpoint"),
    "NMS": ("nms.py", "def batched_nms"),
    "label smoothing": ("label_smoothing.py", "smooth"),
    "imputation": ("imputation.py", "def "),
    "beam search": ("beam_search.py", "def beam_search"),
    "EMA of the weights": ("ema.py", "class EMA"),
    "mixed precision": ("precision.py", "autocast"),
    "LoRA": ("lora.py", "class LoRA"),
    "rotary embedding": ("positional.py", "rotary"),
    "learning-rate schedules": ("schedule.py", "cosine"),
    "BPE tokenizer": ("bpe.py", "def train_bpe"),
    "noise schedule": ("noise_schedule.py", "class NoiseSchedule"),
    "confidence intervals and number formats": ("format.py", "def wilson_interval"),
}


@pytest.mark.parametrize("question", LOOK_UPS)
def test_standard_ideas_are_found_by_file_name(question):
    file_name, content = LOOK_UPS[question]
    files = list(PACKAGE.rglob(file_name))
    assert files, f"no file {file_name}"
    assert any(content in file.read_text() for file in files), f"{content!r} is not in {file_name}"
