#!/usr/bin/env bash
# Run the tests in .venv, which is made first if it is missing, as many at once as there are processors.
# --all includes the long ones (whole recipes, soaks); other arguments go to pytest.
set -euo pipefail
which=(-m "not slow")
if [ "${1:-}" = --all ]; then
    which=() && shift
fi
export ASR_EXTRAS=mini,test
# shellcheck source=scripts/environment.sh
source "$(dirname -- "$0")/environment.sh"
ruff check .
ruff format --check --quiet .
mypy
export OMP_NUM_THREADS=1 # tests share the processors by processes
exec python -m pytest --numprocesses auto --dist worksteal "${which[@]}" "$@"
