#!/usr/bin/env bash
# The AISHELL recipe on nothing but a computer: synthesise a small corpus of Mandarin speech in AISHELL-1's layout, then
# run the recipe on it. Needs no GPU. Run it again: nothing is redone.
#   recipes/aishell/mini.sh [key.path=value ...]
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname "$0")/../../scripts/recipe.sh"

keep_places "recipes/aishell/run.sh takes data/aishell-mini-corpus and more options" "$@"

python recipes/aishell/synthesise.py data/aishell-mini-corpus
bash recipes/aishell/run.sh --corpus data/aishell-mini-corpus --name aishell-mini --config conf/aishell-mini.yaml "$@"
