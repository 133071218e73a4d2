#include "backend/cpu/jit/fingerprint.h"

#include <bit>

namespace ws::cpu {
namespace {

// Each method hashes its name, operands and immediates; a value is the ordinal of the call that made it.
class ListeningBuilder final : public ScalarBuilder {
 public:
  explicit ListeningBuilder(Hash& hash) : hash_(hash) {}
  S input(DType dtype) { return make(dtype); }
  int num_operations() const { return num_operations_; }

  S constant(DType dtype, double value) override {
    return note("constant", dtype, {}, static_cast<uint64_t>(dtype), std::bit_cast<uint64_t>(value));
  }
  S bits_f32(uint32_t bits) override { return note("bits_f32", DType::f32, {}, bits); }
  S add(S a, S b) override { return note("add", a.dtype, {a, b}); }
  S sub(S a, S b) override { return note("sub", a.dtype, {a, b}); }
  S mul(S a, S b) override { return note("mul", a.dtype, {a, b}); }
  S neg(S a) override { return note("neg", a.dtype, {a}); }
  S div(S a, S b) override { return note("div", a.dtype, {a, b}); }
  S fma(S a, S b, S c) override { return note("fma", a.dtype, {a, b, c}); }
  S sqrt(S a) override { return note("sqrt", a.dtype, {a}); }
  S abs(S a) override { return note("abs", a.dtype, {a}); }
  S copysign(S a, S b) override { return note("copysign", a.dtype, {a, b}); }
  S round_even(S a) override { return note("round_even", a.dtype, {a}); }
  S floor(S a) override { return note("floor", a.dtype, {a}); }
  S bit_and(S a, S b) override { return note("bit_and", a.dtype, {a, b}); }
  S bit_or(S a, S b) override { return note("bit_or", a.dtype, {a, b}); }
  S bit_xor(S a, S b) override { return note("bit_xor", a.dtype, {a, b}); }
  S shift_left(S a, int count) override { return note("shift_left", a.dtype, {a}, static_cast<uint64_t>(count)); }
  S shift_right(S a, int count) override { return note("shift_right", a.dtype, {a}, static_cast<uint64_t>(count)); }
  S mul_high_u32(S a, S b) override { return note("mul_high_u32", DType::u32, {a, b}); }
  S eq(S a, S b) override { return note("eq", DType::boolean, {a, b}); }
  S ne(S a, S b) override { return note("ne", DType::boolean, {a, b}); }
  S lt(S a, S b) override { return note("lt", DType::boolean, {a, b}); }
  S le(S a, S b) override { return note("le", DType::boolean, {a, b}); }
  S logical_and(S a, S b) override { return note("logical_and", DType::boolean, {a, b}); }
  S logical_or(S a, S b) override { return note("logical_or", DType::boolean, {a, b}); }
  S logical_not(S a) override { return note("logical_not", DType::boolean, {a}); }
  S select(S c, S a, S b) override { return note("select", a.dtype, {c, a, b}); }
  S cast(S a, DType to) override { return note("cast", to, {a}, static_cast<uint64_t>(to)); }
  S bitcast(S a, DType to) override { return note("bitcast", to, {a}, static_cast<uint64_t>(to)); }
  S index(int axis) override { return note("index", DType::i32, {}, static_cast<uint64_t>(axis)); }
  S linear_index_low() override { return note("linear_index_low", DType::u32, {}); }
  S linear_index_high() override { return note("linear_index_high", DType::u32, {}); }

 private:
  S make(DType dtype) { return {next_++, dtype == DType::bf16 ? DType::f32 : dtype}; }
  S note(std::string_view method, DType dtype, std::initializer_list<S> operands, uint64_t first = 0, uint64_t second = 0) {
    hash_.add(method);
    for (S s : operands) hash_.add(static_cast<uint64_t>(s.id));
    hash_.add(first);
    hash_.add(second);
    if (operands.size() > 0) ++num_operations_;
    return make(dtype);
  }

  Hash& hash_;
  int next_ = 0;
  int num_operations_ = 0;
};

ScalarBuilder::S listen(ListeningBuilder& builder, const LoopKernel& kernel, const LoopInstr& instr) {
  std::vector<ScalarBuilder::S> inputs;
  for (int operand : instr.operands) inputs.push_back(builder.input(kernel.body[static_cast<size_t>(operand)].dtype));
  return instr.op->emit(builder, inputs, instr.attrs);
}

}  // namespace

uint64_t emission_fingerprint(const LoopKernel& kernel) {
  Hash hash;
  for (const LoopInstr& in : kernel.body) {
    if (in.kind != LoopInstr::Kind::kOp) continue;
    ListeningBuilder builder(hash);
    const ScalarBuilder::S result = listen(builder, kernel, in);
    hash.add(static_cast<uint64_t>(result.id));
    hash.add(in.op->traits);
  }
  return hash.value();
}

int emitted_operations(const LoopKernel& kernel, const LoopInstr& instr) {
  Hash ignored;
  ListeningBuilder builder(ignored);
  listen(builder, kernel, instr);
  return builder.num_operations();
}

}  // namespace ws::cpu
