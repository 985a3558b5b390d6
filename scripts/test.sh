#!/usr/bin/env bash
# Run the tests, in .venv, which is made first where it is absent. Arguments go to pytest.
set -euo pipefail
# shellcheck source=scripts/environment.sh
source "$(dirname "$0")/environment.sh"
ruff check .
exec python -m pytest "$@"
