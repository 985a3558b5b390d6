#!/usr/bin/env bash
# The end of every recipe: decode the test sets in each mode, score, and print the result lines.
#   scripts/evaluate.sh NAME "SPLIT ..." [CTC_WEIGHT]     with data/NAME, exp/NAME/tokenizer and exp/NAME/model
set -euo pipefail
name=$1 data=data/$1 exp=exp/$1 weight=${3:-0.3}
for set in $2; do
    for mode in ctc-greedy attention-greedy attention joint; do
        asr-decode --model "$exp/model" --manifest "$data/$set.jsonl.gz" --mode $mode --ctc-weight "$weight" \
            --out "$exp/$set.$mode.txt"
    done
    asr-score "$data/$set.jsonl.gz" "$exp/$set.joint.txt" --against "$exp/$set.attention-greedy.txt"
    asr-score "$data/$set.jsonl.gz" "$exp/$set.joint.txt" --against "$exp/$set.ctc-greedy.txt" --unit word
done
for set in $2; do
    for mode in ctc-greedy attention-greedy attention joint; do
        python scripts/result.py "$name" "$set" $mode "$data/$set.jsonl.gz" "$exp/$set.$mode.txt" \
            "$data" "$exp/tokenizer" "$exp/model"
    done
done
