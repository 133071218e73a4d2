#!/usr/bin/env bash
# Writes docs/walkthrough.md to standard output from real dumps: docs/walkthrough.sh > docs/walkthrough.md
# Uses $WS or build/wholestep. AVX2 and one thread, so that every machine writes the same.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
program=${WS:-$root/build/wholestep}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
inspect=("$program" inspect --model tiny --isa avx2 --threads 1 --cache 0)
"${inspect[@]}" --dump "$work" >/dev/null
update=$(sed -nE 's/^ *([0-9]+) mul\+sub( .*)?$/\1/p' "$work/train_step.program.txt" | head -n 1)
"${inspect[@]}" --show code --kernel "$update" >"$work/code"

fence() { printf '```%s\n' "${1:-}"; cat; printf '```\n'; }
block() { sed -n '/^  auto model/,/^  step(/p' "$root/examples/walkthrough.cc"; }
last_graph=$(ls "$work"/train_step.[0-9]*.ir | tail -n 1)
# The lines of kernel N in the program's text.
kernel() { awk -v n="$1" '/^ *[0-9]+ / { on = ($1 == n) } on' "$work/train_step.program.txt"; }
llvm_loop() { awk '/^vectors:/ { on = 1 } /^$/ { on = 0 } on' "$work/code"; }
# The loop of the assembly that stores whole vectors: from its label to its jump.
assembly_loop() {
  awk '/^\t\.text/ { asm = 1 } asm && /^\.LBB/ { text = ""; label = $1 } asm { text = text $0 "\n" }
       asm && /^\tj/ && index(label, $2 ":") == 1 { printf "%s", text; exit }' "$work/code"
}

cat <<TEXT
# One small step, from C++ to machine code

This page is written by \`docs/walkthrough.sh\` from what the program really does, and a test compares the two. It follows one training step
of a model with two layers: what a user writes, the graph that tracing records, what the passes leave, the kernels, their memory, and
the machine code of one of them. \`wholestep inspect --model tiny\` and \`--dump DIR\` show the same for any model.

## 1. C++

<!-- from examples/walkthrough.cc -->
$(block | fence cpp)

At the first call \`jit\` runs the function once on tensors that stand for values. Nothing is computed: each tensor call records a node.
The model's parameters and the optimizer's state become inputs of the graph, and what the function sets them to become outputs that
are written over them (\`donates\`). \`Trainer\` with \`compile = true\` traces the same step.

## 2. The trace

Forward, loss, backward and update in one graph ([its grammar](ir.md)). The backward half is what each op's vjp wrote, last node first.

$(fence <"$work/train_step.00_trace.ir")

## 3. After the passes

Simplification by exact rules, then common subexpressions, then dead code, until nothing changes
($(cd "$work" && ls train_step.[0-9]*.ir | sed -E 's/train_step\.([0-9]+_[a-z_]+)\.ir/`\1`/' | paste -sd, | sed 's/,/, /g')).
No rule may change a bit of a result, so the loop, which runs the traced ops one by one, gives the same values.

$(fence <"$last_graph")

## 4. Kernels

The schedule turns the graph into a few kernels in execution order. A matrix product takes what follows it into its store hole, a loop
over each finished tile while that lies in the cache; elementwise chains and sums become fused loops. \`b0\`, \`b1\`.. are buffers, with their
strides; \`cut here\` says why a kernel ends where it does.

$(fence <"$work/train_step.program.txt")

## 5. Memory

Every temporary gets an offset in one arena from the calls between which it lives; memory is used again as soon as its value is dead.
The arena is allocated once, exactly this large, and a step allocates nothing. The bound is the largest sum of values that live at once.
In large models a value that is read soon and again much later does not wait in memory: a kernel just before the late reader makes it
once more, with the same bits, where that takes a few elementwise ops on what lives then anyway (\`--disable repeat_late\` keeps it).

$(fence <"$work/train_step.plan.txt")

## 6. One kernel in LLVM's terms

Kernel $update updates the first layer's bias, \`w - g * lr\`:

$(kernel "$update" | fence)

It is generated as a loop over vectors of 16 floats, four at a time, and a masked rest. The loop's op by op run uses the same generator,
and kernels of equal structure are compiled once whatever their sizes. Multiplication and subtraction stay two roundings: nothing is
contracted behind the user's back.

$(llvm_loop | fence llvm)

## 7. Machine code

The same loop for AVX2; on AVX-512 it has half as many instructions and gives the same bits.

$(assembly_loop | fence asm)
TEXT
