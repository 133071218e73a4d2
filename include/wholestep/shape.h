// Shape: the dims of a tensor, outermost first; held inline, 64-bit, never negative.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

namespace ws {

constexpr int kMaxRank = 8;

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  /// Throws ws::Error above kMaxRank dims, for a negative dim, and where the element count exceeds 2^62.
  explicit Shape(std::span<const int64_t> dims);
  explicit Shape(const std::vector<int64_t>& dims) : Shape(std::span<const int64_t>(dims)) {}

  int rank() const { return rank_; }
  /// Negative axes count from the end.
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis < 0 ? axis + rank_ : axis)]; }
  int64_t back() const { return dims_[static_cast<size_t>(rank_ - 1)]; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.begin() + rank_; }
  /// Product of all dims; 1 for a scalar.
  int64_t num_elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank_; ++i) n *= dims_[static_cast<size_t>(i)];
    return n;
  }
  bool operator==(const Shape& o) const {
    if (rank_ != o.rank_) return false;
    for (int i = 0; i < rank_; ++i)
      if ((*this)[i] != o[i]) return false;
    return true;
  }
  /// "[2, 3]"; "[]" for a scalar.
  std::string str() const;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// Row-major strides in elements.
std::array<int64_t, kMaxRank> dense_strides(const Shape& shape);

/// The shape both broadcast to (NumPy's rule); throws ws::Error naming both shapes.
Shape broadcast_shapes(const Shape& a, const Shape& b);

}  // namespace ws
