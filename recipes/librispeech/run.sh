#!/usr/bin/env bash
# LibriSpeech: download → prepare → tokenizer → [language model] → train → decode → score → table. Run it again: it
# continues where it stopped, and repeats nothing. By default it trains on 100 h, which needs a GPU.
#
#   recipes/librispeech/run.sh [--corpus DIR] [--config YAML] [OPTION VALUE ...] [--dry-run] [key.path=value ...]
#
#   --corpus DIR      holds LibriSpeech/ or its subsets, all or some; without it, they are downloaded
#   --config YAML     the experiment (conf/librispeech100.yaml)
#   --name NAME       names the folders data/NAME and exp/NAME (default: the YAML's name)
#   --train WHICH     100, 460, 960, or subsets (default: from the YAML's name, else 100)
#   --dev SUBSET      dev set (dev-clean)
#   --test "SUBSET ..."  sets to decode, if they are there (test-clean test-other)
#   --tokens "..."    options of asr-tokenizer (--kind bpe --size 5000)
#   --lm YAML         also train a language model, and decode with it as well
#   --lm-text FILE    its training text (default: DIR/librispeech-lm-norm.txt.gz, or else downloaded)
#   --ngram ORDER     instead, estimate an n-gram model of the training texts' tokens, and decode with it
#   --modes "..."     modes of decoding (ctc-greedy attention-greedy joint)
#   --decode "..."    options of asr-decode for joint search and rescoring, such as "--beam 20"
#   --decode-lm "..." more options with the language model (--lm-weight 0.6)
#   --gpus N          number of GPUs to train on (default: all of them, or the CPU if there are none)
#   --shar            also copy the recordings into large files, and train on these (for network disks)
#   --dry-run         say what would run, how long and with how much disk
#   key.path=value    changes a setting of the YAML
set -euo pipefail
# shellcheck source=scripts/recipe.sh
source "$(dirname -- "$0")/../../scripts/recipe.sh"

corpus='' config=conf/librispeech100.yaml name='' train='' dev=dev-clean test="test-clean test-other"
tokens="--kind bpe --size 5000" lm='' lm_text='' ngram='' modes="ctc-greedy attention-greedy joint"
decode='' decode_lm="--lm-weight 0.6" gpus=all shar=''
options "corpus config name train dev test tokens lm lm-text ngram modes decode decode-lm gpus shar! dry-run!" "" "$@"
[ -z "$lm" ] || [ -z "$ngram" ] || mistake "got --lm and --ngram; choose one language model to decode with"

config=$(yaml "$config") lm=$(yaml "$lm")
name=${name:-$(basename "$config" .yaml)}
check_name "$name"
[ -n "$train" ] || { [[ "$(basename "$config")" == *960* ]] && train=960 || train=100; }
case "$train" in
    100) train="train-clean-100" ;;
    460) train="train-clean-100 train-clean-360" ;;
    960) train="train-clean-100 train-clean-360 train-other-500" ;;
esac
data=data/$name exp=exp/$name texts=() manifests=()
language=${lm:+$exp/lm}${ngram:+$exp/lm.arpa.gz}
for set in $train; do
    texts+=("$data/$set.jsonl.gz")
    manifests+=("$data/$set${shar:+.shar}.jsonl.gz")
done

# shellcheck disable=SC2086  # word splitting is intended, here and below
evaluate() {
    bash scripts/evaluate.sh "$name" "$test" --modes "$modes" $decode
    [ -z "$language" ] || bash scripts/evaluate.sh "$name" "$test" $decode --lm "$language" $decode_lm
}

check_settings "$exp/model" "$config"
check_searches "$exp/model"

# a local copy may lack test sets, which aren't decoded then; training needs all of its sets
read -ra sets <<<"$train $dev $test"
if [ -z "$corpus" ]; then
    corpus=data/librispeech-corpus
    step asr-download librispeech "$corpus" --parts "${sets[@]}"
else
    corpus=$(absolute "$corpus") decoded=''
    has() { [ -d "$corpus/LibriSpeech/$1" ] || [ -d "$corpus/$1" ]; }
    for set in $train $dev; do
        has "$set" || mistake "$corpus has no $set/; add it, or choose others with --train and --dev"
    done
    for set in $test; do
        if has "$set"; then
            decoded+="$set "
        else
            complain "$corpus has no $set/, so that set isn't decoded"
        fi
    done
    test=$decoded
    read -ra sets <<<"$train $dev $test"
fi

step asr-prepare librispeech "$corpus" "$data" --splits "${sets[@]}" ${shar:+--shar}
# shellcheck disable=SC2086
step asr-tokenizer "${texts[@]}" "$exp/tokenizer" $tokens
if [ -n "$lm" ]; then
    if [ -n "$lm_text" ]; then
        lm_text=$(absolute "$lm_text")
    elif [ -e "$corpus/librispeech-lm-norm.txt.gz" ]; then
        lm_text=$corpus/librispeech-lm-norm.txt.gz
    else
        lm_text=data/librispeech-lm/librispeech-lm-norm.txt.gz
        step asr-download librispeech-lm data/librispeech-lm --parts text
    fi
    step asr-train --gpus "$gpus" --config "$lm" out="$language" tokenizer="$exp/tokenizer" data.train="$lm_text" \
        data.dev="$data/$dev.jsonl.gz"
elif [ -n "$ngram" ]; then
    step asr-ngram "${texts[@]}" "$exp/tokenizer" "$language" --order "$ngram"
fi
joined=$(IFS=,; echo "${manifests[*]}")
[ ${#manifests[@]} = 1 ] || joined="[$joined]"
step asr-train --gpus "$gpus" --config "$config" out="$exp/model" tokenizer="$exp/tokenizer" \
    data.train="$joined" data.dev="$data/$dev.jsonl.gz" ${settings[@]+"${settings[@]}"}
evaluate
[ -n "$dry_run" ] || [ -z "$test" ] || python -m scripts.results "$exp/results.md" "$name"
