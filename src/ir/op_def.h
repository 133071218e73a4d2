// OpDef: everything there is to know about one op, in one value. Declared here, filled in ops/, one file per op family.
// No field may be left out; where an op has no gradient it says `not_differentiable`.
#pragma once
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "ir/attrs.h"
#include "ir/scalar_builder.h"
#include "ir/type.h"

namespace ws {

class Builder;
/// A value of a graph (or of the eager tape) as vjps and passes see it.
struct Value {
  int32_t id = -1;
  bool operator==(const Value&) const = default;
  explicit operator bool() const { return id >= 0; }
};

/// How an op becomes machine code. Elementwise ops have `emit`; the others are structural and known to the schedule by this kind.
enum class Lowering : uint8_t {
  kElementwise,  // one result element from one element of each input; inputs have the result's shape
  kView,         // no arithmetic: result element i is input element f(i), f affine (reshape, broadcast, transpose, slice)
  kReduce,       // sum or max over one group of adjacent axes
  kConcatenate,
  kPad,
  kGather,      // rows of a table by index
  kScatterAdd,  // the adjoint of kGather, deterministic
  kMatmul,
  kAttention,
  kAttentionGrad,
  kCheck,       // passes its input through; may stop the step with a status word
  kCollective,  // all ranks meet here, in the order of the attribute `channel`
};

enum Trait : uint32_t {
  kNoTraits = 0,
  kCommutative = 1u << 0,
  kExpensive = 1u << 1,   // worth storing rather than computing twice inside a kernel (exp, erf, division chains)
  kRandom = 1u << 2,      // depends on its stream attribute: equal only when the stream is equal
  kEffect = 1u << 3,      // must run even where its result is unused (checks)
  kIndexed = 1u << 4,     // emit asks for index() or linear_index()
  kSwapsPairs = 1u << 5,  // elementwise, but element i reads element i^1 of its input along the last axis
  kWideGradient =
      1u << 6,  // vjp takes an f32 gradient of a bf16 result as it is (casts and data movement); others get it rounded
  // Row i of results along the first axis needs row i of the inputs alone (scalars apart). Where the place of a row in a whole batch
  // matters, the attribute `first_row` says where these begin.
  kRowsApart = 1u << 7,
};

struct Cost {
  double flops = 0;
  double bytes = 0;  // read once, written once
};

/// An array of the double-precision reference: integers and booleans are held exactly as doubles.
struct RefArray {
  Type type;
  std::vector<double> data;  // row-major, type.shape.num_elements()
};

struct AttrSpec {
  enum class Kind : uint8_t { flag, integer, number, text, integers, dtype };
  std::string_view name;
  Kind kind;
  bool optional = false;  // may be left out, which means something of its own
};

/// Where a floating input is drawn from in tests: uniformly from [low, high], keeping `margin` away from `kinks`.
struct TestDomain {
  double low = -2, high = 2;
  std::vector<double> kinks = {};
  double tolerance = 2e-7;  // relative error of the fp32 result against the double reference, plus 1e-7 absolute
  bool gradient_check = true;
};

struct OpDef {
  std::string_view name;
  int arity;  // number of inputs; -1: any number >= 1
  int num_results;
  uint32_t traits;  // Trait bits
  Lowering lowering;
  std::vector<AttrSpec> attrs;
  /// Result types. Throws ws::Error naming the op and the offending shapes or dtypes.
  std::function<std::vector<Type>(std::span<const Type> inputs, const Attrs&)> infer;
  /// Gradients of the inputs (Value{} where there is none), given those of the results (Value{} where unused).
  struct VjpArgs {
    std::span<const Value> inputs, results, grad_results;
    const Attrs& attrs;
    uint64_t wanted = ~uint64_t{0};  // bit i: someone asks for the gradient of input i (inputs from 63 on share a bit)
    bool wants(size_t input) const { return (wanted >> (input < 63 ? input : 63) & 1) != 0; }
  };
  std::function<std::vector<Value>(Builder&, const VjpArgs&)> vjp;  // or not_differentiable
  std::function<Cost(std::span<const Type> inputs, std::span<const Type> results, const Attrs&)> cost;
  /// Independent reference in double precision; results come with their types set, data to be filled.
  std::function<void(std::span<const RefArray> inputs, const Attrs&, std::span<RefArray> results)> reference;
  /// kElementwise only, else empty.
  std::function<ScalarBuilder::S(ScalarBuilder&, std::span<const ScalarBuilder::S> inputs, const Attrs&)> emit;
  std::vector<TestDomain> domain;  // one per floating input, or one for all

  bool has(Trait t) const { return (traits & t) != 0; }
  bool differentiable() const { return static_cast<bool>(vjp); }
};

/// Written in place of a vjp.
inline const std::nullptr_t not_differentiable = nullptr;

/// The op of that name, or nullptr. Defined by ops/ from all_ops.inc.
const OpDef* find_op(std::string_view name);
std::span<const OpDef* const> all_ops();

}  // namespace ws
