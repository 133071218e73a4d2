// How the products' operands lie in scratch, words of one element: f32, or bf16 widened. pairs.h has the same for words of two bf16.
//
// A word holds kSteps elements that follow each other along a product's sums: along the head for scores, across rows (of keys or of
// queries) for the other products.
#pragma once
#include <algorithm>
#include <bit>
#include <cstring>

#include "backend/cpu/attention/attention_plan.h"
#include "backend/cpu/attention/rounding.h"

namespace ws::cpu {
namespace {

template <class V>
struct ElementCopies {
  static constexpr int64_t kSteps = 1, kColumns = int64_t{V::kLanes} * V::kVectors;
  static constexpr int64_t words(int64_t elements) { return elements; }

  /// The transposed of x[rows, size] in panels of kColumns columns, each [size][kColumns]; columns past the end are zero.
  static void pack_transposed(float* panels, const HeadRows& x, int64_t rows, int64_t size) {
    if (x.dtype == DType::bf16)
      pack_transposed(panels, reinterpret_cast<const uint16_t*>(x.data), x.stride(), rows, size);
    else
      pack_transposed(panels, reinterpret_cast<const float*>(x.data), x.stride(), rows, size);
  }

  /// Rows [begin, begin + rows) of x, ld apart, words along the head; zeros up to whole vectors.
  static void copy_along(float* to, int64_t ld, const HeadRows& x, int64_t begin, int64_t rows, int64_t size) {
    for (int64_t t = 0; t < rows; ++t, to += ld) {
      if (x.dtype == DType::bf16)
        Bf16Rows::widen(to, reinterpret_cast<const uint16_t*>(x.row(begin + t)), size);
      else
        std::memcpy(to, x.row(begin + t), static_cast<size_t>(size) * sizeof(float));
      for (int64_t d = size; d < ld; ++d) to[d] = 0.0f;
    }
  }
  /// The same, words across rows. A sum's last word may want a row more than there are: it is of zeros with the sign of `missing`.
  static void copy_across(float* to, int64_t ld, const HeadRows& x, int64_t begin, int64_t rows, int64_t size, float) {
    copy_along(to, ld, x, begin, rows, size);
  }
  /// Element d of row t of words across rows; element i of words along a row.
  static float across(const float* x, int64_t ld, int64_t t, int64_t d) { return x[t * ld + d]; }
  static float along(const float* x, int64_t i) { return x[i]; }

  /// Neither NaN nor infinity in so many words.
  static bool all_finite(const float* x, int64_t count) {
    constexpr uint32_t kExponent = 0x7F800000u;
    uint32_t bad = 0;
    for (int64_t i = 0; i < count; ++i) bad |= (std::bit_cast<uint32_t>(x[i]) & kExponent) == kExponent ? 1u : 0u;
    return bad == 0;
  }

 private:
  template <class T>
  static void pack_transposed(float* panels, const T* x, int64_t stride, int64_t rows, int64_t size) {
    for (int64_t s0 = 0; s0 < rows; s0 += kColumns, panels += size * kColumns) {
      const int64_t columns = std::min(kColumns, rows - s0);
      const T* const from = x + s0 * stride;
      int64_t done = 0;
      for (; done + 8 <= columns; done += 8) {
        int64_t d = 0;
        for (; d + 8 <= size; d += 8) V::transpose8(panels + d * kColumns + done, kColumns, from + done * stride + d, stride);
        for (; d < size; ++d)
          for (int64_t i = 0; i < 8; ++i) panels[d * kColumns + done + i] = Bf16Rows::widened(from[(done + i) * stride + d]);
      }
      for (int64_t d = 0; d < size; ++d) {
        for (int64_t i = done; i < columns; ++i) panels[d * kColumns + i] = Bf16Rows::widened(from[i * stride + d]);
        for (int64_t i = columns; i < kColumns; ++i) panels[d * kColumns + i] = 0.0f;
      }
    }
  }
};

}  // namespace
}  // namespace ws::cpu
