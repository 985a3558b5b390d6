#!/usr/bin/env bash
# Serve a model: a page with a microphone at http://127.0.0.1:8000, and an API. What is missing is made first: the
# environment and, without MODEL, the quick start's model, which takes 15 to 20 minutes.
#   scripts/serve.sh [MODEL] [options of asr-serve]
set -euo pipefail
export ASR_EXTRAS=${ASR_EXTRAS:-mini,serve}
# shellcheck source=scripts/recipe.sh
source "$(dirname -- "$0")/recipe.sh"

model=exp/mini/model
if [ $# -gt 0 ] && [[ $1 != -* ]]; then
    model=$1
    [ ! -d "$here/$model" ] || model=$here/$model
    shift
elif [ ! -d "$model" ]; then
    bash recipes/mini/run.sh
fi
exec asr-serve --model "$model" "$@"
