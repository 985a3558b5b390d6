# shellcheck shell=bash
# Sourced by recipes: their environment, and `step`, which runs the commands that leave a stamp.
#   ASR_PLAN=FILE      run nothing, write the steps to FILE, for scripts/plan.py (--dry-run of a recipe)
#   ASR_LAUNCHER=...   start training with this command, such as srun and torchrun (recipes/librispeech/slurm.sbatch)

# Print a problem as one line on stderr.
complain() { printf '%s\n' "${0##*/}: $1" >&2; }

# Report the user's mistake: one line and status 2.
mistake() {
    complain "$1"
    exit 2
}

# --help, anywhere among the arguments, prints the comment at the head of the recipe and installs nothing.
for argument in "$@"; do
    if [ "$argument" = --help ] || [ "$argument" = -h ]; then
        while IFS= read -r line && [[ "$line" == '#'* ]]; do
            line=${line#\#}
            [[ "$line" == '!'* ]] || printf '%s\n' "${line# }"
        done <"$0"
        exit 0
    fi
done

here=$PWD
# shellcheck source=scripts/environment.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

# Run a command that leaves a stamp. Status 3 means that it finished, but some inputs failed. After asr-prepare the recipe
# goes on without them and repeats that at its end. After asr-decode it must not score.
step() {
    local status=0
    if [ -n "${ASR_PLAN:-}" ]; then
        printf '%s\0' $# "$@" >>"$ASR_PLAN"
    elif [ "$1" = asr-train ] && [ -n "${ASR_LAUNCHER:-}" ]; then
        shift
        # shellcheck disable=SC2086  # word splitting is intended
        $ASR_LAUNCHER -m asr.cli.train "$@"
    else
        "$@" || status=$?
        case "$status $1" in
            "3 asr-prepare") trap 'finish_without $?' EXIT ;;
            "3 asr-decode")
                complain "some recordings have no text (see above), so nothing is scored; fix or remove them, and run this again"
                exit 3 ;;
            *) return "$status" ;;
        esac
    fi
}

finish_without() {
    [ "$1" = 0 ] || exit "$1"
    complain "finished, but without the recordings that asr-prepare could not use (see the beginning)"
    exit 3
}

# Read a recipe's arguments: `--NAME VALUE` into the variable of that name (- becomes _), key.path=value into the array
# `settings`, and paths into the array `places`, relative to the caller's folder.
#   options "NAME ..." "PLACE ..." "$@"      the recipe's options and paths. NAME! is a switch, whose variable becomes 1;
#                                            [PLACE] is optional
# If a recipe knows dry-run!, --dry-run prints a plan of all steps and runs none.
options() {
    local known=" $1 " expected=$2 option wanted
    shift 2
    dry_run='' settings=() places=()
    while [ $# -gt 0 ]; do
        option=${1#--}
        if [[ "$1" != -* ]]; then
            if [[ "$1" == *=* && ! -e "$(absolute "$1")" ]]; then
                settings+=("$1")
            else
                places+=("$(absolute "$1")")
            fi
        elif [[ "$1" != --?* || "$known" != *" $option! "* && "$known" != *" $option "* ]]; then
            mistake "no such option $1; --help lists them"
        elif [[ "$known" == *" $option! "* ]]; then
            printf -v "${option//-/_}" 1
        elif [ $# -lt 2 ]; then
            mistake "$1: expected a value"
        else
            printf -v "${option//-/_}" %s "$2"
            shift
        fi
        shift
    done
    read -ra wanted <<<"$expected"
    if [ -z "$expected" ] && [ ${#places[@]} -gt 0 ]; then
        mistake "${places[0]#"$here/"}: expected key.path=value, as in training.epochs=50"
    elif [ ${#places[@]} -ne ${#wanted[@]} ] && ! [[ "$expected" == '['* && ${#places[@]} -eq 0 ]]; then
        mistake "got ${places[*]:-nothing}, expected $expected; see --help"
    fi
    if [[ "$known" == *" gpus "* && "${gpus:-}" != all && ! "${gpus:-}" =~ ^[1-9][0-9]*$ ]]; then
        mistake "--gpus ${gpus:-}: expected a number of GPUs, or all"
    fi
    keep_places
    [ -z "$dry_run" ] || plan_only
}

# Refuse settings that belong to the recipe: decoding would look in another folder than training wrote to.
keep_places() {
    local setting
    for setting in ${settings[@]+"${settings[@]}"}; do
        case "$setting" in
            out=* | tokenizer=* | data.train=* | data.dev=*)
                mistake "$setting: the recipe sets ${setting%%=*} itself, so that all steps agree; use the options that --help lists, or run the commands one by one" ;;
        esac
    done
}

# Refuse a name that can't be a folder in data/ and exp/, or a word of a result line.
check_name() {
    [[ "$1" =~ ^[[:alnum:]][[:alnum:]._+-]*$ ]] ||
        mistake "--name '$1': expected letters, digits and . _ + -, starting with a letter or digit"
}

# From here on, steps are only recorded. Their plan is printed when the recipe ends without an error.
plan_only() {
    ASR_PLAN=$(mktemp)
    export ASR_PLAN
    trap 'finish_plan $?' EXIT
}

finish_plan() {
    local status=$1
    [ "$status" != 0 ] || python -m scripts.plan "$ASR_PLAN" || status=$?
    rm -f "$ASR_PLAN"
    exit "$status"
}

# Resolve a path relative to the caller's folder.
absolute() { [[ "$1" == /* ]] && printf '%s\n' "$1" || printf '%s\n' "$here/$1"; }

# Resolve a YAML file relative to the caller's folder, or else to the repository, as in conf/mini.yaml.
yaml() { [[ -n "$1" && "$1" != /* && -f "$here/$1" ]] && printf '%s\n' "$here/$1" || printf '%s\n' "$1"; }

# Refuse settings that training would refuse, before a download of hours. Skip this once training has begun.
#   check_settings MODEL YAML      also checks the array `settings`
check_settings() {
    [ -e "$1" ] || asr-train --config "$2" --print-config ${settings[@]+"${settings[@]}"} >/dev/null
}

# Refuse searches that decoding would refuse, before the training. Skip this once training has begun, and for a plan, which
# checks them anyway.
#   check_searches MODEL      calls the recipe's own `evaluate`, which runs scripts/evaluate.sh
check_searches() {
    [ ! -e "$1" ] && [ -z "${ASR_PLAN:-}" ] || return 0
    local said
    said=$(ASR_PLAN=/dev/stdout evaluate | python -m scripts.plan /dev/stdin 2>&1 >/dev/null) || {
        printf '%s\n' "${said/#plan.py:/${0##*/}:}" >&2
        exit 2
    }
}
