#!/usr/bin/env bash
# Measures the matrix products on this machine against oneDNN and writes docs/kernels.md. Some minutes; needs `ninja benchmarks`.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${WS_BUILD:-$root/build}
threads=${THREADS:-1,2}
rounds=${ROUNDS:-5}

report() {
  cat <<'TEXT'
# Matrix products: measured

<!-- written by docs/benchmarks.sh -->
Operands and result in fp32, or all in bf16. Both sides in turn, the median of the rounds' ratios; `of peak` is against the FMA or dot
product peak probed beside each measurement; `error` is the largest difference from double precision among 500 elements, by the root
of the sum of squares of the terms (a bf16 result is rounded to 8 bits). One thread is timed by its own processor time, so that
other programs count less; several threads by the clock.

TEXT
  printf 'Machine: %s, %s cores.\n' "$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)"
  "$build/bench_gemm_bench" --threads "$threads" --rounds "$rounds" --markdown 1
  printf '\n## What a fused store costs over the plain product (fp32 tile, one thread)\n\n'
  "$build/bench_gemm_holes_bench" 1 "$rounds" 1
}

report >"$root/docs/kernels.md.new"
mv "$root/docs/kernels.md.new" "$root/docs/kernels.md"
