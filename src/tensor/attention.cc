#include "wholestep/attention.h"

#include <algorithm>
#include <cmath>

#include "support/error.h"
#include "tensor/dispatch.h"
#include "tensor/precision.h"

namespace ws {

Tensor attention(const Tensor& given_q, const Tensor& given_k, const Tensor& given_v, const AttentionOptions& o) {
  const bool masked = o.mask.defined();
  if (!(o.dropout >= 0 && o.dropout <= 1)) fail("{}attention: dropout is {}, but must lie in [0, 1]", path_prefix(), o.dropout);
  if (o.dropout > 0 && !o.key) fail("{}attention: dropout needs a key, as in .key = random_key", path_prefix());
  if (!masked && o.dropout == 0) return attention(given_q, given_k, given_v, o.causal, o.scale);
  for (const Tensor* x : {&given_q, &given_k, &given_v})
    if (!x->defined()) fail("{}attention: q, k or v is not set", path_prefix());
  if (given_q.dtype() != given_k.dtype() || given_q.dtype() != given_v.dtype())
    fail("{}attention: q is {}, k is {}, v is {}; they must have one dtype, so cast what differs", path_prefix(),
         name_of(given_q.dtype()), name_of(given_k.dtype()), name_of(given_v.dtype()));
  const Tensor q = product_operand(given_q), k = product_operand(given_k), v = product_operand(given_v);
  if (q.rank() != 4 || k.rank() != 4)
    fail("{}attention: q and k must be [batch, time, heads, size], not {} and {}", path_prefix(), q.shape().str(),
         k.shape().str());
  const Shape pairs{q.dim(0), q.dim(2), q.dim(1), k.dim(1)};
  if (masked && o.mask.dtype() != DType::boolean)
    fail("{}attention: the mask must be boolean (true: seen), not {}; compare it, as in lt(mask, 0.5)", path_prefix(),
         name_of(o.mask.dtype()));
  const Tensor mask = (masked ? o.mask : Tensor::full({}, 1, DType::boolean)).broadcast_to(pairs);
  Tensor words = o.dropout > 0 ? o.key->value() : Tensor::zeros({2}, DType::u32);
  if (words.dtype() != DType::u32 || !(words.shape() == Shape{2}))
    fail("{}attention: the key must be u32 [2]; make one with key_tensor()", path_prefix());
  const Tensor key0 = words.slice(0, 0, 1).reshape(Shape{}), key1 = words.slice(0, 1, 2).reshape(Shape{});
  const double scale = o.scale.value_or(1 / std::sqrt(static_cast<double>(std::max<int64_t>(1, q.dim(3)))));
  static const OpDef& op = op_named("attention_masked");
  TensorImpl* operands[] = {q.impl().get(),    k.impl().get(),    v.impl().get(),
                            mask.impl().get(), key0.impl().get(), key1.impl().get()};
  Tensor out =
      apply_all(op, operands, {{"causal", o.causal}, {"scale", scale}, {"dropout", o.dropout}, {"first_row", int64_t{0}}})[0];
  if (o.dropout > 0) {
    static const Tensor one = key_tensor(1);
    Variable key = *o.key;
    key.set(words + one);
  }
  return out;
}

}  // namespace ws
