# shellcheck shell=bash
# Sourced by recipes and tests. Put the toolkit's commands on PATH; first make .venv if it is missing or outdated.
# ASR_PYTHON chooses the Python (default: python3), ASR_EXTRAS the extras to install (default: mini). If an environment
# that has the toolkit is active, use that one.

unset CDPATH # it would send `cd` elsewhere
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." || exit
if ! { [ -n "${VIRTUAL_ENV:-}${CONDA_PREFIX:-}" ] && command -v asr-train >/dev/null; }; then
    stamp=.venv/.installed extras=${ASR_EXTRAS:-mini}
    case "$(cat "$stamp" 2>/dev/null)" in
        "$(cksum <pyproject.toml) mini,test" | "$(cksum <pyproject.toml) $extras" | "$(cksum <pyproject.toml) $extras,"*) ready=yes ;;
        *) ready='' ;;
    esac
    if [ -z "$ready" ]; then
        python=${ASR_PYTHON:-python3}
        "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null || {
            echo "environment: $python is $("$python" --version 2>&1), expected Python 3.10 to 3.13; set ASR_PYTHON to one" >&2
            exit 2
        }
        "$python" -c 'import venv, ensurepip' 2>/dev/null || {
            echo "environment: $python lacks its venv module; install it (Debian, Ubuntu: apt install python3-venv)" >&2
            exit 2
        }
        mkdir -p .venv 2>/dev/null && [ -w .venv ] || {
            echo "environment: $PWD: isn't writable; copy it to a folder of your own, or activate an environment that has the toolkit" >&2
            exit 2
        }
        echo "environment: installing into .venv (with PyTorch: up to 6 GB, a few minutes)" >&2
        begun=$SECONDS
        .venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv .venv # missing, or interrupted earlier
        # with torch 2.15, torchaudio 2.11 doesn't load, by which tests judge features and Shar
        .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[$extras]" "torch<2.15"
        echo "$(cksum <pyproject.toml) $extras" >"$stamp"
        echo "environment: ready after $((SECONDS - begun)) s (not counted in any recipe's time)" >&2
    fi
    export PATH="$PWD/.venv/bin:$PATH"
fi
