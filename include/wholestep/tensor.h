// Tensor: a handle to a value. In the loop each call runs one op; inside jit it records one node. The same code serves both.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "wholestep/dtype.h"
#include "wholestep/error.h"
#include "wholestep/shape.h"

namespace ws {

struct TensorImpl;  // src/tensor/tensor_impl.h

class Tensor {
 public:
  Tensor() = default;  // undefined
  /// A scalar f32.
  Tensor(double value);  // NOLINT: implicit, so that `x * 2.0` reads as it should
  /// Copies. Row-major. Error where the count does not fit the shape.
  static Tensor from(std::span<const float> values, const Shape& shape);
  static Tensor from(std::span<const int32_t> values, const Shape& shape);
  static Tensor from_bytes(const void* data, DType dtype, const Shape& shape);
  static Tensor zeros(const Shape& shape, DType dtype = DType::f32);
  static Tensor ones(const Shape& shape, DType dtype = DType::f32);
  static Tensor full(const Shape& shape, double value, DType dtype = DType::f32);
  static Tensor arange(int64_t count, DType dtype = DType::i32);

  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const;
  DType dtype() const;
  int rank() const { return shape().rank(); }
  /// Negative axes count from the end; throws ws::Error for an axis that is not there.
  int64_t dim(int axis) const {
    if (axis >= rank() || axis < -rank()) throw Error("dim(" + std::to_string(axis) + ") of a tensor of shape " + shape().str());
    return shape()[axis];
  }
  int64_t size() const { return shape().num_elements(); }

  /// Reading values. While tracing: an Error that names the layer path and the op.
  double item() const;  // of a tensor with one element
  template <class T>
  std::vector<T> to_vector() const;  // T: float, double, int32_t, uint32_t; row-major; converts bf16 to float, bool to int32_t
  const void* data() const;          // dense, row-major; valid while this handle lives and is not donated

  // Views (cheap where they can be).
  Tensor reshape(const Shape& shape) const;
  Tensor reshape(std::span<const int64_t> dims) const;  // one dim may be -1, as in the forms below
  Tensor reshape(std::initializer_list<int64_t> dims) const {
    return reshape(std::span<const int64_t>(dims.begin(), dims.size()));
  }
  Tensor reshape(const std::vector<int64_t>& dims) const { return reshape(std::span<const int64_t>(dims)); }
  Tensor transpose(std::vector<int64_t> permutation) const;
  Tensor t() const;  // swaps the last two axes
  Tensor broadcast_to(const Shape& shape) const;
  Tensor slice(int axis, int64_t start, int64_t stop, int64_t step = 1) const;
  Tensor squeeze(int axis) const;
  Tensor unsqueeze(int axis) const;
  Tensor contiguous() const;
  Tensor cast(DType dtype) const;
  Tensor detach() const;  // stop_gradient

  // Reductions. Empty axes: all.
  Tensor sum(std::vector<int64_t> axes = {}, bool keepdims = false) const;
  Tensor mean(std::vector<int64_t> axes = {}, bool keepdims = false) const;
  Tensor max(std::vector<int64_t> axes = {}, bool keepdims = false) const;

  std::shared_ptr<TensorImpl> const& impl() const { return impl_; }
  explicit Tensor(std::shared_ptr<TensorImpl> impl) : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<TensorImpl> impl_;  // shared: handles to one value, the tape and captured inputs
};

// Generated from the list of ops: one free function each.
#define UNARY(name) Tensor name(const Tensor& x);
#define BINARY(name) Tensor name(const Tensor& a, const Tensor& b);
#define OTHER(name)
#define WS_OP(kind, name) kind(name)
#include "wholestep/all_ops.inc"
#undef WS_OP
#undef UNARY
#undef BINARY
#undef OTHER

// Broadcasting by NumPy's rule. Dtypes must agree (a plain number takes the other side's dtype); an Error names both.
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, double b);
Tensor operator+(double a, const Tensor& b);
Tensor operator-(const Tensor& a, double b);
Tensor operator-(double a, const Tensor& b);
Tensor operator*(const Tensor& a, double b);
Tensor operator*(double a, const Tensor& b);
Tensor operator/(const Tensor& a, double b);
Tensor operator/(double a, const Tensor& b);
Tensor operator-(const Tensor& x);

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor concatenate(const std::vector<Tensor>& parts, int axis);
/// a [..., M, K] x b [..., K, N] or [K, N] -> [..., M, N], fp32. The flags say that the last two dims are stored swapped.
Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a = false, bool transpose_b = false);
/// table [R, ...], indices i32 [...] -> [indices..., row...]. Indices outside [0, R) stop the step with an error.
Tensor gather(const Tensor& table, const Tensor& indices, const std::string& what = "index");
/// i32 x, passed through; a value outside [low, high) stops the step with an error that names `what`, the value and the range.
Tensor check_range(const Tensor& x, int64_t low, int64_t high, const std::string& what);
/// Scalar x, passed through; NaN or an infinity stops the step with an error that names `what`.
Tensor check_finite(const Tensor& x, const std::string& what);
/// q [B,T,H,D], k and v [B,S,H,D] -> [B,T,H,D]; scale defaults to 1/sqrt(D).
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, bool causal, std::optional<double> scale = {});
Tensor silu(const Tensor& x);
Tensor gelu(const Tensor& x);  // exact (erf)
Tensor gelu_tanh(const Tensor& x);
Tensor softmax(const Tensor& x);      // last axis
Tensor log_softmax(const Tensor& x);  // last axis, from differences of logits

/// A named slot that holds a Tensor a step may replace: parameters, buffers, optimizer state, numbers that change.
/// Copies are handles to the same slot. Inside jit the slot becomes an input, donated and written back.
class Variable {
 public:
  Variable() = default;
  Variable(std::string name, Tensor value, bool trainable = false);
  const std::string& name() const;
  void rename(std::string name);
  const Tensor& value() const;
  /// Shape and dtype must stay the same (an Error names both).
  void set(const Tensor& value);
  bool trainable() const;
  void set_trainable(bool trainable);
  operator const Tensor&() const { return value(); }  // NOLINT: a parameter reads as a tensor
  bool operator==(const Variable& o) const { return slot_ == o.slot_; }
  bool defined() const { return slot_ != nullptr; }
  struct Slot;
  Slot* slot() const { return slot_.get(); }

 private:
  std::shared_ptr<Slot> slot_;  // shared: a model and its optimizer name the same parameter; tied weights
};

/// A number that changes between steps without recompiling (a learning rate).
class Scalar {
 public:
  explicit Scalar(std::string name = "scalar", double value = 0);
  void set(double value);
  double get() const;
  operator Tensor() const { return variable_.value(); }  // NOLINT: reads as a tensor [] f32
  const Variable& variable() const { return variable_; }

 private:
  Variable variable_;
};

/// Random words u32 of `shape`, all 2^32 equally likely: Philox4x32-10, so that word i depends on (key, stream, i) alone, whoever
/// computes it. `key` is u32 [2].
Tensor random_bits(const Tensor& key, const Shape& shape, uint64_t stream = 0);
/// The key of random_bits as a tensor u32 [2] of these 64 bits.
Tensor key_tensor(uint64_t bits);
/// random_bits from a key that moves on: every draw adds 1 to the first word of `key`, so that each draw of a step and each step has
/// words of its own, and what is saved with the key continues where it stopped. Inside jit the key is part of the state.
Tensor draw_bits(Variable key, const Shape& shape);

/// Gradients of a scalar loss. The loss is checked: a step whose loss is not finite stops before any update.
struct Gradients {
  std::vector<Variable> parameters;
  std::vector<Tensor> values;  // undefined where the loss does not depend on the parameter
  Tensor loss;
};
/// Works in the loop (over the ops recorded since the parameters were read, which it uses up) and inside jit. Frozen parameters are left out.
Gradients grad(const Tensor& loss, const std::vector<Variable>& parameters);
/// The same values, their uses recorded from here on, for grad_of. Cuts `x` off from what it was computed from.
Tensor watch(const Tensor& x);
/// Gradients with respect to watched tensors, or tensors computed from watched ones or parameters.
std::vector<Tensor> grad_of(const Tensor& loss, const std::vector<Tensor>& inputs);

/// No tape inside its life: evaluation in the loop.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;

 private:
  bool before_;
};

/// Names the layer for error messages, profiles and the text form, while it lives: "blocks.0.attention".
class PathScope {
 public:
  explicit PathScope(const std::string& name);
  ~PathScope();
  PathScope(const PathScope&) = delete;
  PathScope& operator=(const PathScope&) = delete;

 private:
  size_t length_before_;
};

}  // namespace ws
