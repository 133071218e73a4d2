// Type of one value: element type and shape. Every value of a graph is dense and row-major to its readers;
// how it lies in memory is the schedule's business.
#pragma once
#include <string>

#include "wholestep/dtype.h"
#include "wholestep/shape.h"

namespace ws {

struct Type {
  DType dtype = DType::f32;
  Shape shape;
  bool operator==(const Type&) const = default;
  int64_t num_bytes() const { return shape.num_elements() * static_cast<int64_t>(size_of(dtype)); }
  /// "f32[2, 3]"
  std::string str() const { return std::string(name_of(dtype)) + shape.str(); }
};

}  // namespace ws
