#!/usr/bin/env bash
# The end of every recipe: decode the test sets in each mode, score, and print the result lines.
#   scripts/evaluate.sh NAME "SPLIT ..." [--modes "MODE ..."] [--unit UNIT] [OPTION ...]
# Uses data/NAME, exp/NAME/tokenizer and exp/NAME/model. UNIT is the result lines' (see asr-score). OPTION ... goes to
# asr-decode, for rescoring and the joint search. If --lm is among them, only the joint search runs, as joint+lm.
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname -- "$0")/recipe.sh"

name=$1 splits=$2 data=data/$1 exp=exp/$1 suffix=
modes="ctc-greedy attention-greedy ctc attention rescoring joint" unit=()
shift 2
while [[ "${1:-}" == --modes || "${1:-}" == --unit ]]; do
    [ "$1" = --modes ] && modes=$2 || unit=(--unit "$2")
    shift 2
done
[[ " $* " != *" --lm"[\ =]* ]] || modes=joint suffix=+lm

for set in $splits; do
    for mode in $modes; do
        [[ $mode == rescoring || $mode == joint ]] && options=("$@") || options=()
        step asr-decode --model "$exp/model" --manifest "$data/$set.jsonl.gz" --mode "$mode" \
            ${options[@]+"${options[@]}"} --out "$exp/$set.$mode$suffix.txt"
    done
done
[ -z "${ASR_PLAN:-}" ] || exit 0
for set in $splits; do
    for other in attention-greedy ctc-greedy; do
        [[ $suffix || " $modes " != *" $other "* || " $modes " != *" joint "* ]] || asr-score "$data/$set.jsonl.gz" \
            "$exp/$set.joint.txt" --against "$exp/$set.$other.txt" ${unit[@]+"${unit[@]}"}
    done
done
for set in $splits; do
    for mode in $modes; do
        python -m scripts.result "$name" "$set" "$mode$suffix" "$data/$set.jsonl.gz" "$exp/$set.$mode$suffix.txt" \
            "$data" "$exp/tokenizer" "$exp/model" ${unit[@]+"${unit[@]}"}
    done
done
