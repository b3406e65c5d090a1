#!/usr/bin/env bash
# Everything that needs one GPU: the tests marked `gpu`, then a profile of a transformer stage. Under 5 minutes.
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-.venv/bin/python}
"$python" -m pytest -m gpu tests/backends -q -rs
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"$python" -m pipesim profile zb-h1 -p 1 -m 4 --model tiny-llama --device cuda --micro-batch 8 --seq 512 --out "$out/costs.json"
"$python" -m pipesim validate zb-h1 -p 1 -m 8 --model tiny-llama --device cuda --micro-batch 8 --seq 512 --tolerance 10%
