#include "tensor/views.h"

#include <new>

#include "support/bytes.h"
#include "support/error.h"

namespace ws {

std::shared_ptr<TensorImpl> new_dense(const Type& type) {
  auto impl = new_impl();
  impl->dtype = type.dtype;
  impl->shape = type.shape;
  try {
    impl->storage = allocate_storage(type.num_bytes());
  } catch (const std::bad_alloc&) {
    fail_at_run("out of memory: a tensor {} of {} could not be had; use a smaller batch or model", type.str(),
                bytes_text(static_cast<double>(type.num_bytes())));
  }
  return impl;
}

std::shared_ptr<TensorImpl> alias_of(const TensorData& data) {
  auto impl = new_impl();
  static_cast<TensorData&>(*impl) = data;
  return impl;
}

std::array<int64_t, kMaxRank> strides_of(const TensorData& data) { return data.dense ? dense_strides(data.shape) : data.strides; }

void settle_strides(TensorData& data) {
  int64_t expected = 1;
  bool dense = true;
  for (int i = data.shape.rank() - 1; i >= 0; --i) {
    int64_t& stride = data.strides[static_cast<size_t>(i)];
    if (data.shape[i] == 1)
      stride = 0;  // never stepped along: one spelling for equal layouts
    else if (stride != expected)
      dense = false;
    expected *= data.shape[i];
  }
  data.dense = dense || expected == 0;
}

std::string describe(const TensorImpl& impl) { return impl.type().str(); }

std::optional<TensorData> view_reshape(const TensorData& x, const Shape& shape) {
  TensorData y = x;
  y.shape = shape;
  if (x.dense) return y;
  // Walk both shapes from the inside; each group of old dims that make up a group of new dims must step evenly.
  auto old_strides = x.strides;
  int i = x.shape.rank() - 1, j = shape.rank() - 1;
  while (j >= 0) {
    if (shape[j] == 1) {
      y.strides[static_cast<size_t>(j--)] = 0;
      continue;
    }
    while (i >= 0 && x.shape[i] == 1) --i;
    if (i < 0) return std::nullopt;
    int64_t stride = old_strides[static_cast<size_t>(i)], old_size = x.shape[i], new_size = 1;
    --i;
    int64_t next = stride;
    while (true) {
      while (j >= 0 && new_size < old_size) {
        y.strides[static_cast<size_t>(j)] = shape[j] == 1 ? 0 : next;
        next *= shape[j];
        new_size *= shape[j--];
      }
      if (new_size == old_size) break;
      while (i >= 0 && x.shape[i] == 1) --i;
      if (i < 0 || old_strides[static_cast<size_t>(i)] != stride * old_size) return std::nullopt;
      old_size *= x.shape[i--];
    }
  }
  settle_strides(y);
  return y;
}

TensorData view_broadcast(const TensorData& x, const Shape& shape) {
  TensorData y = x;
  y.shape = shape;
  auto from = strides_of(x);
  int extra = shape.rank() - x.shape.rank();
  y.strides = {};
  for (int i = extra; i < shape.rank(); ++i)
    y.strides[static_cast<size_t>(i)] = x.shape[i - extra] == shape[i] ? from[static_cast<size_t>(i - extra)] : 0;
  settle_strides(y);
  return y;
}

TensorData view_transpose(const TensorData& x, std::span<const int64_t> permutation) {
  TensorData y = x;
  auto from = strides_of(x);
  std::array<int64_t, kMaxRank> dims{};
  for (size_t i = 0; i < permutation.size(); ++i) {
    dims[i] = x.shape[static_cast<int>(permutation[i])];
    y.strides[i] = from[static_cast<size_t>(permutation[i])];
  }
  y.shape = Shape(std::span<const int64_t>(dims.data(), permutation.size()));
  settle_strides(y);
  return y;
}

TensorData view_slice(const TensorData& x, std::span<const int64_t> starts, std::span<const int64_t> stops,
                      std::span<const int64_t> steps) {
  TensorData y = x;
  auto from = strides_of(x);
  std::array<int64_t, kMaxRank> dims{};
  for (size_t i = 0; i < starts.size(); ++i) {
    dims[i] = stops[i] > starts[i] ? (stops[i] - starts[i] + steps[i] - 1) / steps[i] : 0;
    y.offset += dims[i] > 0 ? starts[i] * from[i] : 0;
    y.strides[i] = from[i] * steps[i];
  }
  y.shape = Shape(std::span<const int64_t>(dims.data(), starts.size()));
  settle_strides(y);
  return y;
}

std::optional<TensorData> try_view(const OpDef& op, const TensorData& x, const Attrs& attrs, const Shape& result) {
  static const OpDef *const reshape = find_op("reshape"), *const broadcast = find_op("broadcast"),
                            *const transpose = find_op("transpose"), *const slice = find_op("slice");
  if (&op == reshape) return view_reshape(x, result);
  if (&op == broadcast) return view_broadcast(x, result);
  if (&op == transpose) return view_transpose(x, attrs.integers("permutation"));
  if (&op == slice) return view_slice(x, attrs.integers("starts"), attrs.integers("stops"), attrs.integers("steps"));
  return std::nullopt;
}

}  // namespace ws
