// jit: turns any function of tensors into one compiled call. State of the named objects (models, optimizers, Scalars) becomes
// inputs, is donated and written back.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "wholestep/analysis.h"
#include "wholestep/dtype_report.h"
#include "wholestep/precision.h"
#include "wholestep/tensor.h"

namespace ws {

/// Anything that owns Variables a step may read or write.
class Stateful {
 public:
  virtual ~Stateful() = default;
  /// Appends every Variable, each once, in a stable order.
  virtual void collect_state(std::vector<Variable>& into) const = 0;
};

/// Whether gradients travel between processes while the backward pass goes on. The bits are the same.
enum class Overlap : uint8_t {
  automatic,  ///< where a process has a core to spare beside its threads
  on,
  off,
};

/// How the processes of a job work together (wholestep/distributed.h). data: so many share each batch, row by row.
struct Mesh {
  int data = 1;
  Overlap overlap = Overlap::automatic;
  /// Gradients that travel together, where they overlap. 0: so many that latency costs a twentieth of their time, as measured when
  /// the first step is made.
  int64_t bucket_bytes = 0;
};

struct JitOptions {
  std::string name = "step";
  int num_threads = 0;  // 0: the process's setting (flag THREADS)
  bool donate = true;
  bool announce_recompiles = true;
  std::optional<DType> compute_dtype = {};               // of products, whoever calls; empty: the caller's (ComputeDType)
  std::optional<MatmulPrecision> matmul_precision = {};  // of f32 products, as compute_dtype (MatmulPrecisionScope)
  /// The step's planned peak (state, arguments, results and temporaries) is kept to it: kernels run again in the backward pass rather
  /// than their results being stored, at the least predicted time, with the same bits. 0: no limit. An Error names the least possible.
  int64_t memory_budget_bytes = 0;
  /// Every argument of one or more dims is a global batch, of which this rank computes its share of the rows (the first dim). What
  /// the function means is unchanged: means are over the whole batch, as are a batch norm's statistics, and random bits are those
  /// that one process would draw. Results and state are the same on every rank. An Error where the job has not `mesh.data` processes.
  Mesh mesh = {};
  /// State of which each rank keeps its rows (of the first dim) only, as an optimizer's moments (Optimizer::rowwise_state()). Same bits where
  /// what is computed from it is elementwise. Under no mesh, and of scalars, nothing is sharded.
  std::vector<Variable> sharded_state = {};
  std::vector<int> whole_arguments = {};  ///< positions of arguments that are no batch: every rank computes with all of it
  bool compile = true;                    ///< false: each op a kernel of its own, in order, without passes or fusion
};

/// One compiled function: programs by input shapes. Not copyable; one thread calls it at a time.
class Compiled {
 public:
  using Function = std::function<std::vector<Tensor>(std::span<const Tensor>)>;
  Compiled(Function function, std::vector<Variable> state, JitOptions options);
  ~Compiled();
  Compiled(Compiled&&) noexcept;
  std::vector<Tensor> operator()(std::span<const Tensor> inputs);
  /// Fast form: outputs are written into `outputs` (resized), reusing its memory where no other handle shares it.
  void run(std::span<const Tensor> inputs, std::vector<Tensor>& outputs);
  /// Compiles for these inputs without running.
  void prepare(std::span<const Tensor> inputs);

  int compile_count() const;
  double compile_seconds() const;      // trace to machine code, of the last compile
  CostAnalysis cost_analysis() const;  // these are of the last program used; an Error before the first
  MemoryAnalysis memory_analysis() const;
  Prediction predict(const Roofs& roofs) const;
  /// From the prediction, or from a time that was measured. Says what to try next.
  Classification classify(const Roofs& roofs, double measured_seconds = 0) const;
  /// What each op computes in, and leaks of fp32 into a bf16 region.
  DTypeReport dtype_report() const;
  std::string as_text() const;       // the IR, after passes
  std::string program_text() const;  // kernels and the arena map
  /// Runs `rounds` more steps, each kernel timed by itself; the shortest counts (state advances as in any call).
  Profile profile(std::span<const Tensor> inputs, const Roofs& roofs, int rounds = 1);
  /// What the step would need for these inputs, with `batch` in the place of their leading dim (0: as they are). Allocates and runs
  /// nothing.
  MemoryAnalysis plan(std::span<const Tensor> inputs, int64_t batch = 0);
  /// The largest batch whose planned peak is at most `bytes` (0: the memory budget, without one this machine's memory); 0 where not even
  /// one sample fits. With a memory budget among the options, kernels may run twice to fit.
  int64_t largest_batch(std::span<const Tensor> inputs, int64_t bytes = 0);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace detail {
inline std::vector<Tensor> as_list(Tensor t) { return {std::move(t)}; }
inline std::vector<Tensor> as_list(std::vector<Tensor> t) { return t; }
inline std::vector<Tensor> as_list(std::tuple<Tensor, Tensor> t) { return {std::get<0>(t), std::get<1>(t)}; }
inline void as_result(std::vector<Tensor>& from, Tensor& to) { to = from[0]; }
inline void as_result(std::vector<Tensor>& from, std::vector<Tensor>& to) { to = from; }
inline void as_result(std::vector<Tensor>& from, std::tuple<Tensor, Tensor>& to) { to = {from[0], from[1]}; }
void collect(const Stateful& object, std::vector<Variable>& into);
void collect(const Scalar& object, std::vector<Variable>& into);
void collect(const Variable& object, std::vector<Variable>& into);
void collect(const std::vector<Variable>& objects, std::vector<Variable>& into);

template <class F>
struct Signature : Signature<decltype(&F::operator())> {};
template <class R, class C, class... A>
struct Signature<R (C::*)(A...) const> {
  using Result = R;
  static constexpr size_t kArity = sizeof...(A);
};
template <class R, class C, class... A>
struct Signature<R (C::*)(A...)> : Signature<R (C::*)(A...) const> {};

template <class F, size_t... I>
std::vector<Tensor> call(F& f, std::span<const Tensor> in, std::index_sequence<I...>) {
  return as_list(f(in[I]...));
}
}  // namespace detail

/// A Compiled with the C++ signature of the function it came from.
template <class Result>
class CompiledFunction : public Compiled {
 public:
  using Compiled::Compiled;
  template <class... T>
  Result operator()(const T&... inputs) {
    const Tensor list[] = {inputs..., Tensor()};
    Compiled::run({list, sizeof...(T)}, outputs_);
    Result result;
    detail::as_result(outputs_, result);
    return result;
  }

 private:
  std::vector<Tensor> outputs_;
};

/// The same with options: ws::jit({.name = "evaluate"}, function, model).
template <class F, class... State>
auto jit(JitOptions options, F function, const State&... state) {
  using Sig = detail::Signature<F>;
  std::vector<Variable> variables;
  (detail::collect(state, variables), ...);
  auto erased = [f = std::move(function)](std::span<const Tensor> in) mutable {
    return detail::call(f, in, std::make_index_sequence<Sig::kArity>());
  };
  return CompiledFunction<typename Sig::Result>(std::move(erased), std::move(variables), std::move(options));
}

/// A plain Tensor that the function captures becomes an input by its value at the first call: what is written into its memory is seen
/// at each call, another tensor assigned to the C++ variable is not (--check-trace, WHOLESTEP_CHECK_TRACE=1, names it). What changes belongs in a Variable.
/// `auto step = ws::jit([&](const Tensor& x, const Tensor& y) { ... return loss; }, model, optimizer);`
/// The function takes Tensors and returns a Tensor, a vector of them, or a tuple of two. Called inside another jit function it
/// becomes part of that one. Gradients of the loop do not reach through a compiled call: take them inside.
template <class F, class... State>
requires(!std::is_same_v<F, JitOptions>) auto jit(F function, const State&... state) {
  return jit(JitOptions{}, std::move(function), state...);
}

}  // namespace ws
