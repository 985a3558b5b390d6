#!/usr/bin/env bash
# AISHELL-1, 178 h of Mandarin: download → prepare → characters → [language model] → train → decode → score → table.
# Run it again: it continues where it stopped, and repeats nothing. It needs a GPU.
#
#   recipes/aishell/run.sh [--corpus DIR] [--config YAML] [OPTION VALUE ...] [--dry-run] [key.path=value ...]
#
#   --corpus DIR      holds data_aishell/ or its wav/ and transcript/, unpacked; without it, the corpus is downloaded
#   --config YAML     the experiment (conf/aishell-conformer.yaml)
#   --name NAME       names the folders data/NAME and exp/NAME (default: the YAML's name)
#   --test "SET ..."  sets to decode, if they are there (dev test)
#   --lm YAML         also train a language model on the training texts, and decode with it as well
#   --modes "..."     modes of decoding (ctc-greedy attention-greedy joint)
#   --decode "..."    options of asr-decode for joint search and rescoring (--ctc-weight 0.4)
#   --decode-lm "..." more options with the language model (--lm-weight 0.3)
#   --gpus N          number of GPUs to train on (default: all of them, or the CPU if there are none)
#   --shar            also copy the recordings into large files, and train on these (for network disks)
#   --dry-run         say what would run, how long and with how much disk
#   key.path=value    changes a setting of the YAML
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname -- "$0")/../../scripts/recipe.sh"

corpus='' config=conf/aishell-conformer.yaml name='' test="dev test" lm=''
modes="ctc-greedy attention-greedy joint" decode="--ctc-weight 0.4" decode_lm="--lm-weight 0.3" gpus=all shar=''
options "corpus config name test lm modes decode decode-lm gpus shar! dry-run!" "" "$@"

config=$(yaml "$config") lm=$(yaml "$lm")
name=${name:-$(basename "$config" .yaml)}
check_name "$name"
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
            complain "$corpus has no wav/test/, so that set isn't decoded"
        else
            mistake "$corpus has no wav/$set/, which training needs; add it"
        fi
    done
    test=$decoded
fi

step asr-prepare aishell "$corpus" "$data" --splits "${sets[@]}" ${shar:+--shar}
# includes dev's texts: a character that only they have would stop the training, which computes their loss
step asr-tokenizer "$data/train.jsonl.gz" "$data/dev.jsonl.gz" "$exp/tokenizer" --kind characters
[ -z "$lm" ] || step asr-train --gpus "$gpus" --config "$lm" out="$exp/lm" tokenizer="$exp/tokenizer" \
    data.train="$data/train.jsonl.gz" data.dev="$data/dev.jsonl.gz"
step asr-train --gpus "$gpus" --config "$config" out="$exp/model" tokenizer="$exp/tokenizer" \
    data.train="$data/train${shar:+.shar}.jsonl.gz" data.dev="$data/dev.jsonl.gz" ${settings[@]+"${settings[@]}"}
evaluate
[ -n "$dry_run" ] || [ -z "$test" ] || python -m scripts.results "$exp/results.md" "$name" --unit mixed
