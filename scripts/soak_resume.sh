#!/usr/bin/env bash
# Kill a training at random moments, continue it each time, and compare its weights bit by bit with those of an
# uninterrupted run: bash scripts/soak_resume.sh [KILLS] [SEED] [key=value ...]
# 30 kills (the default) take about ten minutes on two cores. Each run saves its state after every step, so that many
# kills interrupt a save; it reports how many left a half-written file.
set -euo pipefail
unset CDPATH
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
kills=${1:-30} seed=${2:-1}
shift $(($# < 2 ? $# : 2))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
exec python3 -m scripts.soak_resume "$work" "$kills" "$seed" "$@"
