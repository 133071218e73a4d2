// Elements of array files (npy, idx): kind, size and byte order in the file, and the tensor that they become.
#pragma once
#include <cstdint>
#include <string>

#include "io/file.h"
#include "wholestep/tensor.h"

namespace ws {

enum class ElementKind : uint8_t { boolean, signed_whole, unsigned_whole, floating };

struct FileElement {
  ElementKind kind;
  int bytes;        // of one element: 1, 2, 4, 8
  bool big_endian;  // else little-endian
};

/// What tensor elements of this kind become: f2 and f4 f32, f8 f64, booleans stay, u4 u32, other whole numbers i32.
DType dtype_of(FileElement element);
/// A tensor of `shape` from its elements in row-major order, which must be all there. An Error names `where` and a whole number that
/// does not fit its dtype, or a byte that is no boolean.
Tensor tensor_of_elements(Bytes bytes, FileElement element, const Shape& shape, const std::string& where);

}  // namespace ws
