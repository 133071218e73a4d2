// Structural ops that move or check rows of memory and do (almost) no arithmetic: strided copy, concatenate, pad, gather,
// scatter_add, checks. They take plain pointers and any strides, never allocate and never throw; memory speed is the limit, so
// they are plain C++ and choose only how to walk. Bits do not depend on the number of threads.
#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "schedule/program.h"
#include "support/parallel.h"

namespace ws::cpu {

/// An array in memory: element (i0, i1, ..) at data + (i0*strides[0] + i1*strides[1] + ..) * element size. Stride 0 repeats.
struct Strided {
  void* data = nullptr;  // address of element (0, 0, ..)
  Shape dims;
  std::array<int64_t, kMaxRank> strides{};  // elements
};

/// The view's array, `base` being element 0 of its buffer.
inline Strided strided(void* base, const View& view, size_t element_bytes) {
  return {static_cast<char*>(base) + view.offset * static_cast<int64_t>(element_bytes), view.dims, view.strides};
}
/// A dense row-major array.
inline Strided dense(void* data, const Shape& dims) { return {data, dims, dense_strides(dims)}; }

/// to[i] = from[i]: equal dims, any strides. The arrays do not overlap. element_bytes: 1, 2, 4 or 8.
void copy(const Strided& to, const Strided& from, size_t element_bytes, Workers& workers);

/// `parts` one after the other along `axis` of `to`; an empty part is allowed.
void concatenate(const Strided& to, std::span<const Strided> parts, int axis, size_t element_bytes, Workers& workers);

/// `to` is zero but for from[i] at low + i*(interior+1), per axis. to.dims = low + from.dims + (from.dims-1)*interior + high.
void pad(const Strided& to, const Strided& from, std::span<const int64_t> low, std::span<const int64_t> interior,
         size_t element_bytes, Workers& workers);

/// to[j.., r..] = table[indices[j..], r..]: table [rows, row..], indices i32 [j..], to [j.., row..]. An index outside [0, rows)
/// reads zeros: the step's check_range reports it, memory stays safe without one.
void gather(const Strided& to, const Strided& table, const Strided& indices, size_t element_bytes, Workers& workers);

/// to[t, r..] = sum over positions j with indices[j] = t of updates[j, r..], added in ascending (row-major) position from +0.
/// to [rows, row..]; updates [j.., row..]. f32, f64, or bf16 (summed in fp32, rounded once). An index outside [0, rows) is left out.
void scatter_add(const Strided& to, const Strided& indices, const Strided& updates, DType dtype, Workers& workers);

/// Result of a check: ok, or the first offending value in row-major order.
struct CheckResult {
  bool ok = true;
  double value = 0;
};
/// Each element of an i32 array lies in [low, high).
CheckResult check_range(const Strided& x, int64_t low, int64_t high, Workers& workers);
/// Each element of an f32, f64 or bf16 array is neither NaN nor infinite.
CheckResult check_finite(const Strided& x, DType dtype, Workers& workers);

}  // namespace ws::cpu
