#!/usr/bin/env bash
# C++ blocks of the documents come from files that are built and run: a block after <!-- from FILE --> stands in FILE word
# for word. Local links lead somewhere. docs/development.md has every debug flag.
set -euo pipefail
cd "${WS_SOURCE:-$(dirname "$0")/../..}"
bad=0 blocks=0
for page in README.md docs/*.md; do
  [ -f "$page" ] || continue
  source='' inside=0 block=''
  while IFS= read -r line; do
    if [[ $line =~ ^'<!-- from '([^ ]+)' -->'$ ]]; then
      source=${BASH_REMATCH[1]}
    elif [[ $line == '```'* && $inside = 0 ]]; then
      inside=1 block='' language=${line#'```'}
      if [[ $language == cpp && -z $source ]]; then echo "$page: a C++ block that names no file"; bad=1; fi
    elif [[ $line == '```' ]]; then
      inside=0
      if [ -n "$source" ]; then
        blocks=$((blocks + 1))
        if [ ! -f "$source" ]; then echo "$page: $source is missing"; bad=1
        elif [[ $(<"$source") != *"${block%$'\n'}"* ]]; then echo "$page: the block from $source differs from the file"; bad=1; fi
      fi
      source=''
    elif [ "$inside" = 1 ]; then
      block+=$line$'\n'
    fi
  done <"$page"
  for link in $(grep -oE '\]\([^)#: ]+\)' "$page" | sed 's/^](//; s/)$//'); do
    [ -e "$(dirname "$page")/$link" ] || { echo "$page: the link to $link leads nowhere"; bad=1; }
  done
done
flags=$(sed -nE 's/^  (INTEGER|TOGGLE|TEXT|LIST)\((\w+),.*/\2/p' src/support/flags.h)
[ "$(wc -w <<<"$flags")" -ge 15 ] || { echo "the table of src/support/flags.h is not found"; bad=1; }
for flag in $flags; do
  grep -q "^| \`WHOLESTEP_${flag^^}=" docs/development.md || { echo "docs/development.md lacks WHOLESTEP_${flag^^}"; bad=1; }
done
[ "$blocks" -ge 2 ] || { echo "the documents quote only $blocks blocks of code"; bad=1; }
exit $bad
