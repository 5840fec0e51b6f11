#!/bin/sh
# run.sh PRELOAD PROGRAM FILTER: a test program that knows nothing of us, with our engine preloaded. Passes when the
# program does, and when our engine ran its backwards.
report=$(mktemp) || exit 1
trap 'rm -f "$report"' EXIT
# A folder may have blanks, and a name in LD_PRELOAD none.
LD_LIBRARY_PATH=$(dirname "$1")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} OVERDRIVE_VERBOSE=2 LD_PRELOAD=$(basename "$1") "$2" --gtest_brief=1 --gtest_filter="$3" 2>"$report"
status=$?
cat "$report" >&2
[ $status -eq 0 ] || exit $status
grep -q '^overdrive: .*"backwards": [1-9]' "$report" || { echo "run.sh: our engine ran no backward"; exit 1; }
