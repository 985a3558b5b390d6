#!/usr/bin/env bash
# The end of every recipe: decode the test sets in each mode, score, and print the result lines.
#   scripts/evaluate.sh NAME "SPLIT ..." [OPTION ...]     with data/NAME, exp/NAME/tokenizer and exp/NAME/model;
#                                                         options of asr-decode for rescoring and joint search
set -euo pipefail
name=$1 splits=$2 data=data/$1 exp=exp/$1
shift 2
modes="ctc-greedy attention-greedy ctc attention rescoring joint"
for set in $splits; do
    for mode in $modes; do
        [[ $mode == rescoring || $mode == joint ]] && options=("$@") || options=()
        asr-decode --model "$exp/model" --manifest "$data/$set.jsonl.gz" --mode $mode \
            ${options[@]+"${options[@]}"} --out "$exp/$set.$mode.txt"
    done
    asr-score "$data/$set.jsonl.gz" "$exp/$set.joint.txt" --against "$exp/$set.attention-greedy.txt"
    asr-score "$data/$set.jsonl.gz" "$exp/$set.joint.txt" --against "$exp/$set.ctc-greedy.txt"
done
for set in $splits; do
    for mode in $modes; do
        python scripts/result.py "$name" "$set" $mode "$data/$set.jsonl.gz" "$exp/$set.$mode.txt" \
            "$data" "$exp/tokenizer" "$exp/model"
    done
done
