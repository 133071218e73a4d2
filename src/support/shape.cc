#include "wholestep/shape.h"

#include <algorithm>

#include "support/error.h"

namespace ws {

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > static_cast<size_t>(kMaxRank)) fail("a shape of {} dims: at most {} are supported", dims.size(), kMaxRank);
  constexpr int64_t kMaxElements = int64_t{1} << 62;
  // Zeros are left out of the product, so that no partial product of num_elements() can overflow.
  int64_t product = 1;
  for (int64_t d : dims) {
    if (d < 0) fail("a shape with the negative dim {}", d);
    if (d == 0) continue;
    if (product > kMaxElements / d) fail("the shape [{}] has more than 2^62 elements", fmt::join(dims, ", "));
    product *= d;
  }
  std::copy(dims.begin(), dims.end(), dims_.begin());
  rank_ = static_cast<int>(dims.size());
}

std::string Shape::str() const { return fmt::format("[{}]", fmt::join(dims(), ", ")); }

std::array<int64_t, kMaxRank> dense_strides(const Shape& shape) {
  std::array<int64_t, kMaxRank> strides{};
  int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = step;
    step *= shape[i];
  }
  return strides;
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<int64_t> dims(static_cast<size_t>(rank));
  for (int i = 1; i <= rank; ++i) {  // from the last axis outwards
    const int64_t da = i <= a.rank() ? a[-i] : 1, db = i <= b.rank() ? b[-i] : 1;
    if (da != db && da != 1 && db != 1)
      fail("the shapes {} and {} do not broadcast: {} against {} on axis -{}", a.str(), b.str(), da, db, i);
    dims[static_cast<size_t>(rank - i)] = da == 1 ? db : da;
  }
  return Shape(dims);
}

}  // namespace ws
