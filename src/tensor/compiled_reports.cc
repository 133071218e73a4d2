// What a Compiled tells about itself: of the last program used.
#include <cmath>

#include "analysis/dtype_report.h"
#include "analysis/reports.h"
#include "support/bytes.h"
#include "support/error.h"
#include "tensor/compiled_impl.h"

namespace ws {

const Executable& Compiled::Impl::last_executable() const {
  if (!last) fail("{}: nothing is compiled yet; call it, or prepare() it, first", options.name);
  return *last->program->executable;
}

std::string Compiled::Impl::summary(const Executable& e) const {
  const CostAnalysis cost = analyse_cost(e.program());
  return fmt::format("{} kernels, {:.4g} GFLOP, {:.4g} MB moved, arena {} (no plan below {}), {} kernels run twice",
                     cost.num_kernels, cost.flops * 1e-9, cost.bytes * 1e-6,
                     bytes_text(static_cast<double>(e.plan().arena_bytes)),
                     bytes_text(static_cast<double>(e.plan().lower_bound_bytes)), e.recomputation().num_repeated);
}

CostAnalysis Compiled::cost_analysis() const { return analyse_cost(impl_->last_executable().program()); }

namespace {

MemoryAnalysis memory_of(const Program& program, const MemoryPlan& plan, const Recomputation& recomputation,
                         int64_t scratch_bytes, int64_t budget_bytes) {
  MemoryAnalysis m = analyse_memory(program, plan, scratch_bytes);
  m.budget_bytes = budget_bytes;
  m.limited = recomputation.limited;
  m.unlimited_peak_bytes =
      recomputation.unlimited_arena_bytes > 0 ? m.peak_bytes - m.arena_bytes + recomputation.unlimited_arena_bytes : m.peak_bytes;
  return m;
}

}  // namespace

MemoryAnalysis Compiled::memory_analysis() const {
  const Executable& e = impl_->last_executable();
  return memory_of(e.program(), e.plan(), e.recomputation(), e.scratch_bytes(), impl_->options.memory_budget_bytes);
}

Prediction Compiled::predict(const Roofs& roofs) const {
  const Executable& e = impl_->last_executable();
  return predict_time(e.program(), e.plan(), roofs);
}

Classification Compiled::classify(const Roofs& roofs, double measured_seconds) const {
  return classify_step(impl_->last_executable().program(), predict(roofs), roofs, measured_seconds);
}

Profile Compiled::profile(std::span<const Tensor> inputs, const Roofs& roofs, int rounds) {
  if (rounds < 1) fail("profile: {} rounds, but there must be at least 1", rounds);
  std::vector<double> seconds;
  std::vector<Tensor> outputs;
  for (int round = 0; round < rounds; ++round)
    impl_->call(inputs, outputs, [&](Executable& executable, void* const* in, void* const* out) {
      seconds.resize(executable.program().calls.size(), HUGE_VAL);
      executable.run_observed(in, out, [&](int call, double ns) {
        double& best = seconds[static_cast<size_t>(call)];
        best = std::min(best, ns * 1e-9);
      });
    });
  return make_profile(impl_->last_executable().program(), seconds, predict(roofs), roofs);
}

DTypeReport Compiled::dtype_report() const {
  std::vector<DTypeReport::Op> ops = count_dtypes(impl_->last_executable().graph());
  return {std::move(ops), impl_->last->leaks};
}

std::string Compiled::as_text() const { return print(impl_->last_executable().graph()); }

std::string Compiled::program_text() const {
  const Executable& executable = impl_->last_executable();
  return print(executable.program()) + print(executable.program(), executable.plan());
}

}  // namespace ws
