# shellcheck shell=bash
# Sourced by recipes and tests: puts the toolkit's commands on PATH, making .venv first where it is absent or outdated.
# ASR_PYTHON chooses the Python (default: python3); in an active environment that has the toolkit, that one is used.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
if ! { [ -n "${VIRTUAL_ENV:-}${CONDA_PREFIX:-}" ] && command -v asr-train >/dev/null; }; then
    stamp=.venv/.installed
    if [ ! -e "$stamp" ] || [ "$(cat "$stamp")" != "$(cksum <pyproject.toml)" ]; then
        python=${ASR_PYTHON:-python3}
        "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 14))' 2>/dev/null || {
            echo "environment: $python is $("$python" --version 2>&1), expected Python 3.10 to 3.13; set ASR_PYTHON to one" >&2
            exit 2
        }
        "$python" -c 'import venv, ensurepip' 2>/dev/null || {
            echo "environment: $python lacks its venv module; install it (Debian, Ubuntu: apt install python3-venv)" >&2
            exit 2
        }
        echo "environment: installing into .venv (PyTorch and all: up to 6 GB, a few minutes)" >&2
        begun=$SECONDS
        .venv/bin/python -m pip --version >/dev/null 2>&1 || "$python" -m venv .venv # absent, or begun and stopped
        .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[mini,dev]"
        cksum <pyproject.toml >"$stamp"
        echo "environment: ready after $((SECONDS - begun)) s (not counted in any recipe's time)" >&2
    fi
    export PATH="$PWD/.venv/bin:$PATH"
fi
