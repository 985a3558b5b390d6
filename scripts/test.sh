#!/usr/bin/env bash
# Run the tests in .venv, which is made first if it is missing. Arguments go to pytest.
set -euo pipefail
export ASR_EXTRAS=mini,test
# shellcheck source=scripts/environment.sh
source "$(dirname -- "$0")/environment.sh"
ruff check .
ruff format --check --quiet .
exec python -m pytest "$@"
