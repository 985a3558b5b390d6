#!/usr/bin/env bash
# yesno: sixty recordings of one man who says "yes" and "no" in Hebrew; every other file trains.
#   recipes/yesno/run.sh [WAVES_YESNO_DIR] [key.path=value ...]      without it, it is downloaded from OpenSLR (5 MB)
set -euo pipefail
here=$PWD
source "$(dirname "$0")/../../scripts/environment.sh"

if [ -n "${1:-}" ] && [[ "$1" != *=* ]]; then
    corpus=$1; shift
    [[ "$corpus" == /* ]] || corpus=$here/$corpus
else
    corpus=data/yesno-corpus
    asr-download yesno $corpus
fi
asr-prepare yesno "$corpus" data/yesno
asr-tokenizer data/yesno/train.jsonl.gz exp/yesno/tokenizer --kind bpe --size 10
asr-train --config conf/yesno.yaml "$@"
bash scripts/evaluate.sh yesno test
