# shellcheck shell=bash
# Sourced by recipes: their environment, and `step`, by which they run what leaves a stamp.
#   ASR_PLAN=FILE      run nothing, note the steps in FILE, for scripts/plan.py (--dry-run of a recipe)
#   ASR_LAUNCHER=...   start training by these words, such as srun and torchrun (recipes/librispeech/slurm.sbatch)

here=$PWD
# shellcheck source=scripts/environment.sh
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

step() {
    if [ -n "${ASR_PLAN:-}" ]; then
        printf '%s\0' $# "$@" >>"$ASR_PLAN"
    elif [ "$1" = asr-train ] && [ -n "${ASR_LAUNCHER:-}" ]; then
        shift
        # shellcheck disable=SC2086  # its words are meant
        $ASR_LAUNCHER -m asr.cli.train "$@"
    else
        "$@"
    fi
}

# Read a recipe's arguments: `--NAME VALUE` into the variable of that name (- becomes _), key.path=value into the array
# `settings`; --dry-run makes a plan of all steps, which are not run.
#   options "NAME ..." "$@"      the names that the recipe knows; NAME! is a switch, whose variable becomes 1
options() {
    local known=" $1 " option
    shift
    dry='' settings=()
    while [ $# -gt 0 ]; do
        option=${1#--}
        if [ "$1" = --dry-run ]; then
            dry=1
        elif [[ "$1" != --* ]]; then
            settings+=("$1")
        elif [[ "$known" == *" $option! "* ]]; then
            printf -v "${option//-/_}" 1
        elif [[ "$known" != *" $option "* ]]; then
            mistake "no such option $1; see the head of $0"
        elif [ $# -lt 2 ]; then
            mistake "$1 wants a value"
        else
            printf -v "${option//-/_}" %s "$2"
            shift
        fi
        shift
    done
    keep_places "--name and the other options choose it" ${settings[@]+"${settings[@]}"}
    [ -z "$dry" ] || plan_only
}

# Refuse what is no setting, and settings that the recipe gives itself: training would go elsewhere than decoding looks.
#   keep_places "what to do instead" key.path=value ...
keep_places() {
    local instead=$1 setting
    shift
    for setting in "$@"; do
        case "$setting" in
            out=* | tokenizer=* | data.train=* | data.dev=*)
                mistake "$setting: the recipe sets ${setting%%=*} itself, so that all its steps agree; $instead" ;;
            *=*) ;;
            *) mistake "$setting: expected key.path=value, as in training.epochs=50" ;;
        esac
    done
}

# From here on steps are noted; their plan is printed when the recipe ends without a mistake.
plan_only() {
    ASR_PLAN=$(mktemp)
    export ASR_PLAN
    trap 'finish_plan $?' EXIT
}

finish_plan() {
    local status=$1
    [ "$status" != 0 ] || python scripts/plan.py "$ASR_PLAN" || status=$?
    rm -f "$ASR_PLAN"
    exit "$status"
}

# The user's mistake: one line and status 2.
mistake() {
    echo "${0##*/}: $1" >&2
    exit 2
}

# A path as the caller of the recipe meant it.
absolute() { [[ "$1" == /* ]] && echo "$1" || echo "$here/$1"; }

# A YAML as the caller of the recipe meant it, or of the repository, such as conf/mini.yaml.
yaml() { [[ -n "$1" && "$1" != /* && -f "$here/$1" ]] && echo "$here/$1" || echo "$1"; }

# Refuse settings that training would refuse, before a download that takes hours; not where training has begun.
#   check_settings MODEL YAML      and those of `settings`
check_settings() {
    [ -e "$1" ] || asr-train --config "$2" --print-config ${settings[@]+"${settings[@]}"} >/dev/null
}

# Refuse searches that decoding would refuse, before the training; not where it has begun. A plan asks them anyway.
#   check_searches MODEL      `evaluate`, the recipe's own, runs scripts/evaluate.sh
check_searches() {
    [ ! -e "$1" ] && [ -z "${ASR_PLAN:-}" ] || return 0
    local said
    said=$(ASR_PLAN=/dev/stdout evaluate | python scripts/plan.py /dev/stdin 2>&1 >/dev/null) || {
        echo "${said/#plan.py:/${0##*/}:}" >&2
        exit 2
    }
}
