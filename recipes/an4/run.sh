#!/usr/bin/env bash
# AN4, 50 minutes of spelled words, numbers and commands, with the telephone-bandwidth charm of 1991.
#   recipes/an4/run.sh [AN4_DIR] [key.path=value ...]      without AN4_DIR it is downloaded from CMU (64 MB)
set -euo pipefail
here=$PWD
source "$(dirname "$0")/../../scripts/environment.sh"

if [ -n "${1:-}" ] && [[ "$1" != *=* ]]; then
    corpus=$1; shift
    [[ "$corpus" == /* ]] || corpus=$here/$corpus
else
    corpus=data/an4-corpus
    python scripts/download.py http://www.speech.cs.cmu.edu/databases/an4/an4_sphere.tar.gz $corpus
fi
asr-prepare an4 "$corpus" data/an4
asr-tokenizer data/an4/train.jsonl.gz exp/an4/tokenizer --kind bpe --size 110
asr-train --config conf/an4.yaml "$@"
bash scripts/evaluate.sh an4 test --ctc-weight 0.7 --length-bonus 1  # chosen on dev: asr-decode --tune
