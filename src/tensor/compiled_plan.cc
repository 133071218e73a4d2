// What a step would need before anything of it exists: plans for other batches, and the refusal of what does not fit the machine.
#include "analysis/machine_memory.h"
#include "analysis/reports.h"
#include "support/bytes.h"
#include "support/error.h"
#include "support/flags.h"
#include "tensor/compiled_impl.h"

namespace ws {
namespace {

/// The leading dim of the first argument that has one; 0 where none does.
int64_t batch_of(std::span<const Type> arguments) {
  for (const Type& t : arguments)
    if (t.shape.rank() > 0) return t.shape[0];
  return 0;
}

std::string in_words(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::vector<Type> types_of(std::span<const Tensor> inputs) {
  std::vector<Type> types;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) fail("plan: input {} is an undefined Tensor", i);
    types.push_back(inputs[i].impl()->type());
  }
  return types;
}

}  // namespace

int Compiled::Impl::threads() const { return options.num_threads > 0 ? options.num_threads : configured_threads(); }

std::vector<Type> Compiled::Impl::with_batch(std::vector<Type> arguments, int64_t batch) {
  const int64_t before = batch_of(arguments);
  for (Type& t : arguments) {
    if (t.shape.rank() == 0 || t.shape[0] != before) continue;
    std::vector<int64_t> dims(t.shape.begin(), t.shape.end());
    dims[0] = batch;
    t.shape = Shape(dims);
  }
  return arguments;
}

PlannedProgram Compiled::Impl::plan_for(std::span<const Type> arguments, int64_t budget_bytes) const {
  const TracedFunction traced = trace(arguments);
  return plan_traced(rank_part(traced), traced.kept_inputs(), threads(), budget_bytes);
}

// The peak grows almost in a straight line with the batch: interpolate between a batch that fits and one that does not.
int64_t Compiled::Impl::largest_batch(const std::vector<Type>& arguments, int64_t bytes) const {
  const auto peak = [&](int64_t batch) {
    try {
      const int64_t budget = options.memory_budget_bytes > 0 ? bytes : 0;
      return static_cast<double>(plan_for(with_batch(arguments, batch), budget).peak_bytes());
    } catch (const MemoryError& least) {
      return static_cast<double>(least.needed_bytes);
    }
  };
  const auto limit = static_cast<double>(bytes);
  int64_t fits = 1, too_large = std::max<int64_t>(batch_of(arguments), 2);
  if (batch_of(arguments) == 0) return 0;
  double fits_peak = peak(fits), large_peak = peak(too_large);
  if (fits_peak > limit) return 0;
  while (large_peak <= limit) {
    if (too_large > (int64_t{1} << 40)) return too_large;
    fits = too_large, fits_peak = large_peak;
    too_large *= 2, large_peak = peak(too_large);
  }
  while (too_large - fits > 1) {
    const double part = (limit - fits_peak) / std::max(large_peak - fits_peak, 1.0);
    const auto guess = fits + static_cast<int64_t>(part * static_cast<double>(too_large - fits));
    const int64_t batch = std::clamp(guess, fits + 1, too_large - 1);
    const double needed = peak(batch);
    if (needed <= limit) {
      fits = batch, fits_peak = needed;
      if (too_large - fits > 1 && peak(fits + 1) > limit) break;  // the guess was right
    } else {
      too_large = batch, large_peak = needed;
    }
  }
  return fits;
}

void Compiled::Impl::refuse_if_too_large(const Executable& executable, const std::vector<Type>& arguments) const {
  const MemoryPlan& plan = executable.plan();
  const int64_t needed = plan.fixed_bytes() + executable.temporary_bytes();
  const int64_t available = machine_memory_bytes();
  if (needed <= available) return;
  int64_t batch = 0;
  try {
    batch = largest_batch(arguments, available);
  } catch (const Error&) {  // the function takes this batch alone
  }
  std::string advice = "use a smaller batch or model, checkpoint() or a memory budget";
  if (batch > 0)
    advice = fmt::format("the largest batch that fits is {} (not {}); else use checkpoint() or a memory budget", batch,
                         batch_of(arguments));
  throw MemoryError(
      fmt::format("{}: this step needs {} by plan ({} of it temporaries), {} {}: {}", options.name, in_words(needed),
                  in_words(executable.temporary_bytes()), whose_memory(), in_words(available), advice),
      needed, available, batch);
}

MemoryAnalysis Compiled::plan(std::span<const Tensor> inputs, int64_t batch) {
  if (batch < 0) fail("plan: the batch is {}, but must be at least 1", batch);
  std::vector<Type> types = types_of(inputs);
  if (batch > 0) types = Impl::with_batch(std::move(types), batch);
  const PlannedProgram planned = impl_->plan_for(types, impl_->options.memory_budget_bytes);
  return analyse_memory(*planned.program, planned.plan, 0);
}

int64_t Compiled::largest_batch(std::span<const Tensor> inputs, int64_t bytes) {
  if (bytes <= 0) bytes = impl_->options.memory_budget_bytes > 0 ? impl_->options.memory_budget_bytes : machine_memory_bytes();
  return impl_->largest_batch(types_of(inputs), bytes);
}

}  // namespace ws
