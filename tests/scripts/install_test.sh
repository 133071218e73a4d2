#!/usr/bin/env bash
# Installs into an empty folder, then builds the examples outside the tree with find_package(wholestep), and runs them.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cmake --install "$WS_BUILD" --prefix "$work/prefix" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
[ -x "$work/prefix/bin/wholestep" ] || { echo "the program was not installed"; exit 1; }
cp -r "$WS_SOURCE/examples" "$work/examples"   # outside the tree: nothing of ours beside it
sanitize=$(sed -n 's/^WS_SANITIZE:[A-Z]*=//p' "$WS_BUILD/CMakeCache.txt")
flags=(-DCMAKE_PREFIX_PATH="$work/prefix")
most_seconds=300
if [ -n "$sanitize" ]; then flags+=(-DCMAKE_CXX_FLAGS="-fsanitize=$sanitize") most_seconds=3000; fi
cmake -S "$work/examples" -B "$work/build" -G Ninja "${flags[@]}" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cmake --build "$work/build" >"$work/log" 2>&1 || { tail -n 40 "$work/log"; exit 1; }
count=0
for program in "$work"/build/*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  (cd "$work" && timeout "$most_seconds" "$program" >"$work/log" 2>&1) || { echo "$(basename "$program") failed:"; cat "$work/log"; exit 1; }
  [ -s "$work/log" ] || { echo "$(basename "$program") printed nothing"; exit 1; }
  count=$((count + 1))
done
[ "$count" -ge 2 ] || { echo "only $count examples were built"; exit 1; }
