// Random words as tensors. The number of a draw is in the key, which is state: the loop and a compiled step, a run and its
// continuation, all read the same words.
#include <array>

#include "support/error.h"
#include "tensor/dispatch.h"

namespace ws {

Tensor random_bits(const Tensor& key, const Shape& shape, uint64_t stream) {
  if (!key.defined() || key.dtype() != DType::u32 || !(key.shape() == Shape{2}))
    fail("{}random_bits: the key must be u32 [2]; make one with key_tensor()", path_prefix());
  auto word = [&](int64_t i) { return key.slice(0, i, i + 1).reshape(Shape{}).broadcast_to(shape); };
  Tensor low = word(0), high = word(1);
  return apply_op("random_bits", {&low, &high}, {{"stream", static_cast<int64_t>(stream)}, {"offset", int64_t{0}}});
}

Tensor key_tensor(uint64_t bits) {
  const std::array<uint32_t, 2> words = {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
  return Tensor::from_bytes(words.data(), DType::u32, {2});
}

Tensor draw_bits(Variable key, const Shape& shape) {
  Tensor now = key.value();
  Tensor bits = random_bits(now, shape);
  static const Tensor one = key_tensor(1);
  key.set(now + one);
  return bits;
}

}  // namespace ws
