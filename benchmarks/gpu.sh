#!/usr/bin/env bash
# What the GPU has to show: correctness first, then an epoch beside other loops, then whole runs. Ends in short tables.
set -u
export PYTHONPATH=src PYTHONUNBUFFERED=1 DIDACT_DATA="${DIDACT_DATA:-.carry/data}"
python3 -m pytest -q -p no:cacheprovider tests/training/test_loop_gpu.py tests/optim tests/metrics tests/data/images/test_augment.py 2>&1 | tail -15
python3 benchmarks/mlp_epoch.py --device cuda --rounds "${ROUNDS:-3}" 2>/dev/null | cut -c1-130
for seed in 0 1 2; do
    python3 -m didact train mlp --data mnist --seed $seed --runs /tmp/runs --json 2>/dev/null |
        python3 -c "import json,sys; r=json.load(sys.stdin); print('mnist seed', r['arguments'] and $seed, {k: round(r[k],4) if k=='seconds' else round(r[k]['accuracy'],4) for k in ('seconds','validation','test')})"
done
