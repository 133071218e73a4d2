#!/usr/bin/env bash
# Includes go one way: a source folder includes itself and the folders before it, nothing else of ours.
set -euo pipefail
cd "${WS_SOURCE:-$(dirname "$0")/../..}"

# check_tree: reads "FILE:INCLUDED" lines on stdin; prints those that go the wrong way; fails if there is any.
check_tree() {
  awk '
    BEGIN {
      n = split("support ir ops autodiff passes schedule memory backend runtime analysis tensor io api cli", order, " ")
      for (i = 1; i <= n; ++i) rank[order[i]] = i
      # Public headers belong to the folder that implements them.
      split("dtype shape error random", s, " "); for (i in s) owner[s[i] ".h"] = "support"
      owner["all_ops.inc"] = "ir"; owner["tensor.h"] = "tensor"; owner["jit.h"] = "tensor"; owner["precision.h"] = "tensor"; owner["dtype_report.h"] = "analysis"
      owner["data.h"] = "io"
      owner["analysis.h"] = "analysis"; owner["recompute.h"] = "tensor"
      owner["distributed.h"] = "tensor"; owner["attention.h"] = "tensor"
    }
    {
      colon = index($0, ":"); file = substr($0, 1, colon - 1); included = substr($0, colon + 1)
      if (file ~ /^include\/wholestep\//) { base = file; sub(/.*\//, "", base); from = (base in owner) ? owner[base] : "api"; public = 1 }
      else { split(file, part, "/"); from = (part[1] == "src") ? part[2] : part[1]; public = 0 }
      split(included, target, "/")
      if (target[1] == "wholestep") to = (target[2] in owner) ? owner[target[2]] : "api"
      else if (target[1] in rank && target[2] != "") { to = target[1]; if (public) { print file " (public) includes " included; bad = 1; next } }
      else if (from == "cli") next                     # its own helper headers
      else { print file " includes " included ": no folder of src"; bad = 1; next }
      if (rank[to] > rank[from]) { print file " includes " included ": " from " comes before " to; bad = 1 }
    }
    END { exit bad }'
}
list() {
  grep -rnoE --include='*.h' --include='*.cc' --include='*.inc' '^#include "[^"]+"' src include cli |
    sed -E 's/^([^:]+):[0-9]+:#include "([^"]+)"/\1:\2/'
}

# The check itself must be able to fail.
if printf 'src/ir/graph.cc:ops/op.h\n' | check_tree >/dev/null || printf 'include/wholestep/tensor.h:ir/graph.h\n' | check_tree >/dev/null ||
  printf 'src/tensor/tensor.cc:wholestep/trainer.h\n' | check_tree >/dev/null || ! printf 'src/ops/op.cc:ir/graph.h\n' | check_tree >/dev/null; then
  echo "the include check does not work"
  exit 1
fi
list | check_tree
