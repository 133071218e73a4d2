// Support of the loop compiler's tests: building kernels by hand, guarded arrays, calls, and ops evaluated in plain C++.
#pragma once
#include <gtest/gtest.h>
#include <immintrin.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "backend/cpu/jit/loop_compiler.h"
#include "ops/eval_scalar_builder.h"

namespace ws::test {

using cpu::Isa;
using cpu::LoopCompiler;

/// Denormals as inside a step.
class StepMode {
 public:
  StepMode() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | 0x8040u); }
  ~StepMode() { _mm_setcsr(saved_); }
  StepMode(const StepMode&) = delete;
  StepMode& operator=(const StepMode&) = delete;

 private:
  unsigned saved_;
};

inline std::vector<Isa> machine_isas() {
  std::vector<Isa> out;
  for (Isa isa : {Isa::avx2, Isa::avx512})
    if (cpu::supports(isa)) out.push_back(isa);
  return out;
}

/// One compiler an ISA for the whole program.
inline LoopCompiler& compiler(Isa isa) {
  static LoopCompiler avx2({Isa::avx2, "", 2});
  static LoopCompiler avx512({Isa::avx512, "", 2});
  return isa == Isa::avx2 ? avx2 : avx512;
}

/// Elements between guard bytes that no kernel may touch. Starts at an odd multiple of the element size.
class Array {
 public:
  Array(DType dtype, int64_t count)
      : dtype_(dtype), count_(count), bytes_(2 * kGuard + static_cast<size_t>(count) * size_of(dtype), kPattern) {
    shift_ = size_of(dtype);
    bytes_.resize(bytes_.size() + shift_, kPattern);
  }
  void* data() { return bytes_.data() + kGuard + shift_; }
  const void* data() const { return bytes_.data() + kGuard + shift_; }
  DType dtype() const { return dtype_; }
  int64_t size() const { return count_; }
  template <class T>
  T& at(int64_t i) {
    return static_cast<T*>(data())[i];
  }
  void set(int64_t i, double v) {
    switch (dtype_) {
      case DType::f32: at<float>(i) = static_cast<float>(v); break;
      case DType::bf16:
        at<uint16_t>(i) =
            static_cast<uint16_t>(std::bit_cast<uint32_t>(ops::EvalScalarBuilder::rounded_to_bf16(static_cast<float>(v))) >> 16);
        break;
      case DType::f64: at<double>(i) = v; break;
      case DType::i32: at<int32_t>(i) = static_cast<int32_t>(v); break;
      case DType::u32: at<uint32_t>(i) = static_cast<uint32_t>(v); break;
      case DType::boolean: at<uint8_t>(i) = v != 0; break;
    }
  }
  double get(int64_t i) const {
    auto* self = const_cast<Array*>(this);
    switch (dtype_) {
      case DType::f32: return static_cast<double>(self->at<float>(i));
      case DType::bf16: return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(self->at<uint16_t>(i)) << 16));
      case DType::f64: return self->at<double>(i);
      case DType::i32: return self->at<int32_t>(i);
      case DType::u32: return self->at<uint32_t>(i);
      case DType::boolean: return self->at<uint8_t>(i);
    }
    return 0;
  }
  bool guards_whole() const {
    for (size_t i = 0; i < kGuard; ++i)
      if (bytes_[i] != kPattern || bytes_[bytes_.size() - 1 - i] != kPattern) return false;
    return true;
  }
  bool untouched() const {
    for (uint8_t b : bytes_)
      if (b != kPattern) return false;
    return true;
  }
  /// Equal bits, all NaNs alike.
  static bool same(const Array& a, const Array& b, int64_t i) {
    const double x = a.get(i), y = b.get(i);
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y);
  }

 private:
  static constexpr size_t kGuard = 128;
  static constexpr uint8_t kPattern = 0xa5;
  DType dtype_;
  int64_t count_;
  size_t shift_ = 0;
  std::vector<uint8_t> bytes_;
};

/// Index of the first element whose bits differ, -1: none.
inline int64_t first_difference(const Array& a, const Array& b) {
  for (int64_t i = 0; i < a.size(); ++i)
    if (!Array::same(a, b, i)) return i;
  return -1;
}

/// Writes a kernel line by line; each call gives the value's id.
class KernelWriter {
 public:
  explicit KernelWriter(Walk walk, int rank) : kernel_(std::make_shared<LoopKernel>()) {
    kernel_->walk = walk;
    kernel_->rank = rank;
  }
  int access(DType dtype, Step step) {
    kernel_->accesses.push_back({dtype, step});
    return static_cast<int>(kernel_->accesses.size()) - 1;
  }
  int load(DType dtype, Step step = Step::kUnit) {
    return push({LoopInstr::Kind::kLoad, dtype, nullptr, {}, false, {}, access(dtype, step)});
  }
  int fold(DType dtype, Step step, bool is_max = false) {
    return push({LoopInstr::Kind::kFold, dtype, nullptr, {}, is_max, {}, access(dtype, step)});
  }
  int scalar(DType dtype) {
    kernel_->scalars.push_back(dtype);
    return push({LoopInstr::Kind::kScalar, dtype, nullptr, {}, false, {}, static_cast<int>(kernel_->scalars.size()) - 1});
  }
  int op(const OpDef& def, std::vector<int> operands, DType dtype = DType::f32, Attrs attrs = {}) {
    return push({LoopInstr::Kind::kOp, dtype, &def, std::move(attrs), false, std::move(operands), -1});
  }
  int op(std::string_view name, std::vector<int> operands, DType dtype = DType::f32, Attrs attrs = {}) {
    return op(*find_op(name), std::move(operands), dtype, std::move(attrs));
  }
  int reduce_row(int value, DType dtype, bool is_max = false) {
    return push({LoopInstr::Kind::kReduceRow, dtype, nullptr, {}, is_max, {value}, -1});
  }
  void reduce_column(int value, DType dtype, bool is_max = false) {
    push({LoopInstr::Kind::kReduceColumn, dtype, nullptr, {}, is_max, {value}, access(dtype, Step::kUnit)});
  }
  void store(int value, DType dtype, Step step = Step::kUnit) {
    push({LoopInstr::Kind::kStore, dtype, nullptr, {}, false, {value}, access(dtype, step)});
  }
  std::shared_ptr<const LoopKernel> done() const { return kernel_; }

 private:
  int push(LoopInstr instr) {
    kernel_->body.push_back(std::move(instr));
    return static_cast<int>(kernel_->body.size()) - 1;
  }
  std::shared_ptr<LoopKernel> kernel_;
};

/// Arguments of one call.
class Call {
 public:
  Call(const LoopKernel& kernel, std::vector<int64_t> dims)
      : dims_(std::move(dims)), layout_{static_cast<int>(kernel.accesses.size()), kernel.rank,
                                        static_cast<int>(kernel.scalars.size())},
        words_(static_cast<size_t>(layout_.words()), 0) {
    for (int d = 0; d < kernel.rank; ++d) word(layout_.dim(d)) = dims_[static_cast<size_t>(d)];
  }
  Call& bind(int access, void* pointer, std::vector<int64_t> strides) {
    word(layout_.pointer(access)) = std::bit_cast<int64_t>(pointer);
    for (size_t d = 0; d < strides.size(); ++d) word(layout_.stride(access, static_cast<int>(d))) = strides[d];
    return *this;
  }
  Call& bind_dense(int access, Array& array) { return bind(access, array.data(), dense()); }
  Call& fold(int access, int64_t count, int64_t stride) {
    word(layout_.fold_count(access)) = count;
    word(layout_.fold_stride(access)) = stride;
    return *this;
  }
  Call& scalar(int slot, int64_t bits) {
    word(layout_.scalar(slot)) = bits;
    return *this;
  }
  std::vector<int64_t> dense() const {
    std::vector<int64_t> strides(dims_.size(), 1);
    for (size_t d = dims_.size() - 1; d-- > 0;) strides[d] = strides[d + 1] * dims_[d + 1];
    return strides;
  }
  int64_t outer() const {
    int64_t n = 1;
    for (size_t d = 0; d + 1 < dims_.size(); ++d) n *= dims_[d];
    return n;
  }
  int64_t units(Walk walk) const {
    if (walk == Walk::kFlatBlocks) return (dims_[0] + kFlatBlock - 1) / kFlatBlock;
    if (walk == Walk::kRowBlocks) {
      const int64_t rows = dims_[dims_.size() - 2];
      return rows == 0 ? 0 : outer() / rows * ((rows + kRowBlock - 1) / kRowBlock);
    }
    return outer();
  }
  /// The whole range, or a part of it. Rows may be swept side by side or one by one.
  void run(const LoopCode& code, Walk walk, bool side_by_side = true) const {
    const bool rows = walk == Walk::kRows || walk == Walk::kRowBlocks;
    run(code, 0, units(walk), rows && side_by_side ? 1 : 0, dims_.back(), walk);
  }
  void run(const LoopCode& code, int64_t begin, int64_t end, int64_t inner_begin, int64_t inner_end, Walk walk) const {
    const int64_t row = walk == Walk::kFlatBlocks ? kFlatBlock : (dims_.back() + kLanes - 1) / kLanes * kLanes;
    std::vector<double> scratch(static_cast<size_t>(row * code.scratch_slots) + 8, -77);
    auto address = (std::bit_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64;
    const StepMode mode;
    code.fn(words_.data(), begin, end, inner_begin, inner_end, std::bit_cast<void*>(address));
  }

 private:
  int64_t& word(int i) { return words_[static_cast<size_t>(i)]; }
  std::vector<int64_t> dims_;
  LoopArgsLayout layout_;
  std::vector<int64_t> words_;
};

inline LoopCode compile_one(Isa isa, const std::shared_ptr<const LoopKernel>& kernel) {
  return compiler(isa).compile(std::span(&kernel, 1))[0];
}

inline int64_t bits_of(float f) { return std::bit_cast<uint32_t>(f); }

/// Normal floats of both signs, with the values that break things sprinkled in where `specials`.
inline void fill_random(Array& a, uint32_t seed, double low = -2, double high = 2, bool specials = false) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(low, high);
  const double odd[] = {
      0.0, -0.0, std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity(), std::nan(""), 1.2e-38, -3e38,
      1.0, -1.0};
  for (int64_t i = 0; i < a.size(); ++i) {
    double v = uniform(random);
    if (a.dtype() == DType::boolean) v = static_cast<double>(random() & 1u);
    if (a.dtype() == DType::u32) v = std::abs(v);
    if (specials && is_floating(a.dtype()) && random() % 8 == 0) v = odd[random() % std::size(odd)];
    a.set(i, v);
  }
}

}  // namespace ws::test
