#!/usr/bin/env bash
# Measures the kernels on this machine against their roofs and against oneDNN and writes docs/kernels/ISA.md. Some minutes of an otherwise
# idle machine; needs `ninja benchmarks`.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${WS_BUILD:-$root/build}
threads=${THREADS:-1,2}
rounds=${ROUNDS:-5}

isa=$("$build/wholestep" bench --model tiny --steps 2 --json | sed -n 's/.*"isa":"\([^"]*\)".*/\1/p')

report() {
  printf '# Kernels: measured on %s\n\n<!-- written by docs/benchmarks.sh -->\n\n' "$isa"
  cat <<'TEXT'
## Matrix products

Operands and result in fp32, or all in bf16. Both sides in turn, the median of the rounds' ratios; `of peak` is against the FMA or dot
product peak probed beside each measurement; `error` is the largest difference from double precision among 500 elements, by the root
of the sum of squares of the terms (a bf16 result is rounded to 8 bits). One thread is timed by its own processor time, so that
other programs count less; several threads by the clock.

TEXT
  printf 'Machine: %s, %s cores.\n' "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)"
  "$build/bench_gemm_bench" --threads "$threads" --rounds "$rounds" --markdown 1
  printf '\n## What a fused store costs over the plain product (fp32 tile, one thread)\n\n'
  "$build/bench_gemm_holes_bench" 1 "$rounds" 1
  cat <<'TEXT'

## Attention

Forward and backward against matmul, softmax and matmul written out and compiled, in turn.

TEXT
  "$build/bench_attention_bench" --rounds "$rounds"
  cat <<'TEXT'

## Row kernels and optimizer updates

The roof is the time in which the arguments can be read once and the results written once, by probes on sets of the same size: pairs of read
and write at the rate of a copy, other reads at the rate of a sum. Above 100 %: results written in place, where a copy must fetch the
lines that it writes. Rows that lie in L2 are limited by arithmetic where they take exponentials, square roots or divisions.

TEXT
  "$build/bench_rows_bench" --rounds "$rounds"
  printf '\n## fp32 products in bf16 parts (`matmul_precision`) over fp32 (one thread)\n\n'
  "$build/bench_matmul_precision_bench" "$rounds" 1
}

page=$root/docs/kernels/$isa.md
report >"$page.new"
mv "$page.new" "$page"
