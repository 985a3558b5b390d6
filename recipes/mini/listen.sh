#!/usr/bin/env bash
# Let the mini model transcribe three test recordings, beside their references.
set -euo pipefail
cd "$(dirname "$0")/../.."
python - <<'PY' >exp/mini/listen.tsv
from asr.data import manifest

utterances = list(manifest.read("data/mini/test-mini.jsonl.gz"))
for u in utterances[:: len(utterances) // 3][:3]:
    print(u.path, u.text, sep="\t")
PY
mapfile -t files < <(cut -f1 exp/mini/listen.tsv)
asr-decode --model exp/mini/model --device cpu "${files[@]}" >exp/mini/listen.txt 2>exp/mini/listen.log || {
    cat exp/mini/listen.log >&2
    exit 2
}
echo
paste exp/mini/listen.tsv exp/mini/listen.txt | while IFS=$'\t' read -r path reference _ heard; do
    printf '%s\n  said:  %s\n  heard: %s\n' "$path" "$reference" "$heard"
done
cat <<'END'

This model has heard espeak-ng's voices and a grammar of under 800 words, nothing else. It knows no other word, no
human voice, no far microphone: your recordings need a model trained on human speech (recipes/librispeech, or your own).
END
