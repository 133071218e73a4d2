#!/usr/bin/env bash
# Every source file is as clang-format writes it. `format_test.sh --fix` rewrites them.
set -euo pipefail
cd "${WS_SOURCE:-$(dirname "$0")/../..}"
if ! clang-format --version | grep -q 'version 14\.'; then
  echo "needs clang-format 14 (other versions break lines elsewhere): skipped"
  exit 0
fi
files=$(find src include cli tests bench examples -name '*.h' -o -name '*.cc' -o -name '*.cpp')
# shellcheck disable=SC2086
if [ "${1:-}" = --fix ]; then clang-format -i $files; else clang-format --dry-run -Werror $files 2>&1 | grep -E 'error:' | sort -u -t: -k1,1 && exit 1; fi
exit 0
