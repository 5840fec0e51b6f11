#!/usr/bin/env bash
# Looks at our Python: ruff over the package and the tools, mypy --strict over the package. The rules are in pyproject.toml.
# Exit status 77 where the two cannot be fetched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh lint || {
  echo "lint: skipped: ruff and mypy could not be fetched" >&2
  exit 77
}
status=0
.deps/lint/bin/ruff check --quiet python tools || status=1
.deps/lint/bin/mypy --no-error-summary || status=1
exit $status
