#!/usr/bin/env bash
# AISHELL-1, 178 h of Mandarin: download → prepare → characters → [language model] → train → decode → score → table.
# Run it again: it goes on where it was stopped, and does nothing that is done. It wants a GPU.
#
#   recipes/aishell/run.sh [--corpus DIR] [--config YAML] [OPTION VALUE ...] [--dry-run] [key.path=value ...]
#
#   --corpus DIR      holds data_aishell/ or its wav/ and transcript/, unpacked; without it they are downloaded
#   --config YAML     the experiment (conf/aishell-conformer.yaml)
#   --name NAME       of the folders data/NAME and exp/NAME (default: the YAML's)
#   --test "SET ..."  those that are there are decoded (dev test)
#   --lm YAML         train a language model of the training texts, too, and decode with it besides
#   --modes "..."     of decoding (ctc-greedy attention-greedy joint)
#   --decode "..."    options of asr-decode for joint search and rescoring (--ctc-weight 0.4)
#   --decode-lm "..." more of them with the language model (--lm-weight 0.3)
#   --gpus N          to train on (all there are, else the CPU)
#   --shar            copy the recordings into large files, too, and train on these (disks of a network)
#   --dry-run         say what would run, how long and with how much disk
#   key.path=value    changes a setting of the YAML
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname "$0")/../../scripts/recipe.sh"

corpus='' config=conf/aishell-conformer.yaml name='' test="dev test" lm=''
modes="ctc-greedy attention-greedy joint" decode="--ctc-weight 0.4" decode_lm="--lm-weight 0.3" gpus=all shar=''
options "corpus config name test lm modes decode decode-lm gpus shar!" "$@"

config=$(yaml "$config") lm=$(yaml "$lm")
name=${name:-$(basename "$config" .yaml)}
data=data/$name exp=exp/$name sets=(train dev test)
# shellcheck disable=SC2086  # their words are meant
evaluate() {
    bash scripts/evaluate.sh "$name" "$test" --modes "$modes" --unit mixed $decode
    [ -z "$lm" ] || bash scripts/evaluate.sh "$name" "$test" --unit mixed $decode --lm "$exp/lm" $decode_lm
}

check_settings "$exp/model" "$config"
check_searches "$exp/model"

if [ -z "$corpus" ]; then
    corpus=data/aishell-corpus
    step asr-download aishell "$corpus" --parts data
else
    corpus=$(absolute "$corpus") sets=() decoded=''
    for set in train dev test; do
        if [ -d "$corpus/wav/$set" ] || [ -d "$corpus/data_aishell/wav/$set" ]; then
            sets+=("$set")
            [[ " $test " != *" $set "* ]] || decoded+="$set "
        elif [ $set = test ]; then
            echo "run.sh: $corpus has no wav/test/, so it is not decoded" >&2
        else
            mistake "$corpus has no wav/$set/, which training needs; add it"
        fi
    done
    test=$decoded
fi

step asr-prepare aishell "$corpus" "$data" --splits "${sets[@]}" ${shar:+--shar}
# dev's texts too: a character that only they have would else stop the training, which takes their loss
step asr-tokenizer "$data/train.jsonl.gz" "$data/dev.jsonl.gz" "$exp/tokenizer" --kind characters
[ -z "$lm" ] || step asr-train --gpus "$gpus" --config "$lm" out="$exp/lm" tokenizer="$exp/tokenizer" \
    data.train="$data/train.jsonl.gz" data.dev="$data/dev.jsonl.gz"
step asr-train --gpus "$gpus" --config "$config" out="$exp/model" tokenizer="$exp/tokenizer" \
    data.train="$data/train${shar:+.shar}.jsonl.gz" data.dev="$data/dev.jsonl.gz" ${settings[@]+"${settings[@]}"}
evaluate
[ -n "$dry" ] || [ -z "$test" ] || python scripts/results.py "$exp/results.md" "$name" --unit mixed
