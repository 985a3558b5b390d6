#!/usr/bin/env bash
# Synthesize a small corpus of Mandarin speech in AISHELL-1's layout, then run the AISHELL recipe on it. Needs no GPU.
# Run it again: nothing is repeated. recipes/aishell/run.sh has more options; it also accepts the corpus that this makes,
# data/aishell-mini-corpus.
#   recipes/aishell/mini.sh [key.path=value ...]
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname -- "$0")/../../scripts/recipe.sh"

options "" "" "$@"

python recipes/aishell/synthesize.py data/aishell-mini-corpus
bash recipes/aishell/run.sh --corpus data/aishell-mini-corpus --name aishell-mini --config conf/aishell-mini.yaml "$@"
