#include "runtime/checked_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "support/communicator.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/log.h"
#include "support/trace.h"

namespace ws {
namespace {

constexpr int64_t kGuardBytes = 64;
constexpr uint32_t kGuardWord = 0x7fc0dead;  // a NaN of our own, seen as such by NAN_CHECK too

/// By place in the buffer, which begins at a multiple of 4: buffers of one-byte elements that share memory agree on it.
char guard_byte(int64_t i) { return static_cast<char>(kGuardWord >> (8 * (i & 3))); }

size_t at(int i) { return static_cast<size_t>(i); }

double element(const char* data, DType dtype, int64_t i) {
  auto load = [&]<class T>(T) {
    T x;
    std::memcpy(&x, data + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return x;
  };
  switch (dtype) {
    case DType::f32: return static_cast<double>(load(float{}));
    case DType::f64: return load(double{});
    case DType::i32: return load(int32_t{});
    case DType::u32: return load(uint32_t{});
    case DType::boolean: return load(uint8_t{}) != 0 ? 1 : 0;
    case DType::bf16: {
      const uint32_t bits = static_cast<uint32_t>(load(uint16_t{})) << 16;
      float f;
      std::memcpy(&f, &bits, 4);
      return static_cast<double>(f);
    }
  }
  return 0;
}

double largest_finite(const RefArray& a) {
  double largest = 0;
  for (double x : a.data)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  return largest;
}

/// From one bf16 to the next: what was near the middle of two may have been rounded to either.
double rounding_step(DType dtype, double a, double b) {
  constexpr int kFractionBits = 7;
  const double larger = std::max(std::abs(a), std::abs(b));
  return dtype == DType::bf16 && std::isnormal(larger) ? std::ldexp(1, std::ilogb(larger) - kFractionBits) : 0;
}

/// An empty buffer has none: no kernel runs to make one, so none is written.
bool has_guard(const ProgramBuffer& b) { return b.role == ProgramBuffer::Role::kTemporary && b.num_elements > 0; }

/// What a kernel goes on with, where the reference, in double precision, has not left the range of fp32: an infinity, or zero.
void keep_to_range(RefArray& a) {
  if (a.type.dtype != DType::f32 && a.type.dtype != DType::bf16) return;
  constexpr double kOverflows = 0x1.ffffffp127, kSmallestNormal = 0x1p-126;
  for (double& x : a.data) {
    if (std::abs(x) >= kOverflows) x = std::copysign(HUGE_VAL, x);
    if (std::abs(x) < kSmallestNormal) x = std::copysign(0.0, x);
  }
}

std::string title(const KernelCall& call) { return call.path.empty() ? call.name : call.name + " @" + call.path; }

}  // namespace

void add_guards(Program& program) {
  for (ProgramBuffer& b : program.buffers)
    if (has_guard(b)) b.num_elements += kGuardBytes / static_cast<int64_t>(size_of(b.dtype));
}

bool CheckedRun::wanted() {
  return flags().debug >= 5 || flags().verify >= 3 || flags().nan_check || flags().poison || tracing();
}

CheckedRun::CheckedRun(const Executable& executable, void* const* inputs, void* const* outputs, char* arena)
    : executable_(executable), inputs_(inputs), outputs_(outputs), arena_(arena) {
  const Program& p = executable.program();
  buffer_of_value_.assign(at(executable.graph().num_values()), -1);
  for (size_t b = 0; b < p.buffers.size(); ++b)
    if (p.buffers[b].value) buffer_of_value_[at(p.buffers[b].value.id)] = static_cast<int>(b);
  find_lifetimes();
  if (flags().poison)
    for (size_t b = 0; b < p.buffers.size(); ++b) poison(static_cast<int>(b));
}

void CheckedRun::find_lifetimes() {
  const Program& p = executable_.program();
  last_use_.assign(p.buffers.size(), -1);
  last_write_.assign(p.buffers.size(), -1);
  for (size_t c = 0; c < p.calls.size(); ++c)
    for (int b : p.calls[c].writes) last_write_[at(b)] = static_cast<int>(c);
  for (size_t c = 0; c < p.calls.size(); ++c)
    for (const auto* list : {&p.calls[c].reads, &p.calls[c].writes})
      for (int b : *list) last_use_[at(b)] = static_cast<int>(c);
  last_touch_ = last_use_;
  for (size_t b = p.buffers.size(); b-- > 0;)  // memory taken over in place lives on
    for (int host = executable_.plan().shares_with[b]; host >= 0; host = executable_.plan().shares_with[at(host)])
      last_touch_[at(host)] = std::max(last_touch_[at(host)], last_touch_[b]);
}

char* CheckedRun::address(int buffer) const {
  const ProgramBuffer& b = executable_.program().buffers[at(buffer)];
  if (b.alias_of >= 0) return address(b.alias_of);
  if (b.role == ProgramBuffer::Role::kInput) return static_cast<char*>(inputs_[at(b.index)]);
  if (b.role == ProgramBuffer::Role::kOutput) return static_cast<char*>(outputs_[at(b.index)]);
  const int64_t offset = executable_.plan().offsets[at(buffer)];
  return offset < 0 ? nullptr : arena_ + offset;
}

RefArray CheckedRun::read(int buffer) const {
  const ProgramBuffer& b = executable_.program().buffers[at(buffer)];
  RefArray r{executable_.graph().type_of(b.value), {}};
  r.data.resize(static_cast<size_t>(r.type.shape.num_elements()));
  const Shape& shape = r.type.shape;
  InputLayout layout{0, dense_strides(shape)};
  if (const auto& layouts = executable_.options().input_layouts; b.role == ProgramBuffer::Role::kInput && !layouts.empty())
    layout = layouts[at(b.index)];
  for (size_t i = 0; i < r.data.size(); ++i) {
    int64_t place = layout.offset, rest = static_cast<int64_t>(i);
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      place += rest % shape[axis] * layout.strides[at(axis)];
      rest /= shape[axis];
    }
    r.data[i] = element(address(buffer), b.dtype, place);
  }
  return r;
}

void CheckedRun::poison(int buffer) const {
  const ProgramBuffer& b = executable_.program().buffers[at(buffer)];
  if (b.role != ProgramBuffer::Role::kTemporary || executable_.plan().offsets[at(buffer)] < 0) return;
  char* memory = address(buffer);
  for (int64_t i = 0; i < b.num_bytes(); ++i) memory[i] = guard_byte(i);
}

void CheckedRun::check_guards(int call) const {
  const Program& p = executable_.program();
  for (int b : call_at(call).writes) {
    const ProgramBuffer& buffer = p.buffers[at(b)];
    if (!has_guard(buffer) || executable_.plan().offsets[at(b)] < 0) continue;
    bool inside_old_data = false;  // its end lies inside what a larger host held
    for (int host = executable_.plan().shares_with[at(b)]; host >= 0; host = executable_.plan().shares_with[at(host)])
      inside_old_data |= p.buffers[at(host)].num_bytes() != buffer.num_bytes();
    if (inside_old_data) continue;
    const char* memory = address(b);
    for (int64_t i = buffer.num_bytes() - kGuardBytes; i < buffer.num_bytes(); ++i)
      WS_ASSERT(memory[i] == guard_byte(i), "kernel {} wrote past the end of {}", title(call_at(call)), buffer.name);
  }
}

void CheckedRun::check_finite(int call) const {
  for (int b : call_at(call).writes) {
    const ProgramBuffer& buffer = executable_.program().buffers[at(b)];
    if (!buffer.value || !is_floating(buffer.dtype) || last_write_[at(b)] != call) continue;
    const int64_t n = executable_.graph().type_of(buffer.value).shape.num_elements();
    for (int64_t i = 0; i < n; ++i)
      if (const double x = element(address(b), buffer.dtype, i); !std::isfinite(x))
        fail_at_run("NAN_CHECK: kernel {} wrote {} at element {} of {}", title(call_at(call)), x, i, buffer.name);
  }
}

/// A value as the reference sees it: read from memory where it lies there now, else computed from its inputs.
const CheckedRun::Known& CheckedRun::value(Value v) {
  if (auto it = known_.find(v.id); it != known_.end()) return it->second;
  if (auto it = expected_.find(v.id); it != expected_.end()) return known_[v.id] = {it->second.array};
  const Graph& g = executable_.graph();
  const int p = g.producer_of(v), b = buffer_of_value_[at(v.id)];
  if (p < 0) {
    const bool written_over = std::any_of(written_before_.begin(), written_before_.end(),
                                          [&](int w) { return executable_.program().buffers[at(w)].alias_of == b; });
    return known_[v.id] = {read(b), written_over};  // then this kernel reads a copy of it
  }
  const Node& node = g.nodes()[at(p)];
  std::vector<RefArray> inputs;
  bool stale = false;
  for (Value in : node.inputs) {
    const int place = buffer_of_value_[at(in.id)];
    // What this kernel computes again is not read, even if its first copy once lay in memory.
    const bool computed_here = std::find(nodes_here_.begin(), nodes_here_.end(), g.producer_of(in)) != nodes_here_.end();
    const bool lies_there =
        place >= 0 && !computed_here && std::find(written_before_.begin(), written_before_.end(), place) != written_before_.end();
    if (lies_there && known_.count(in.id) == 0)  // used no more: the kernel reads a copy of it
      known_[in.id] = {read(place), last_use_[at(place)] < call_};
    const Known& known = value(in);
    inputs.push_back(known.array);
    stale |= known.stale;
  }
  std::vector<RefArray> results = interpret_node(g, node, inputs);
  std::for_each(results.begin(), results.end(), keep_to_range);
  for (size_t i = 0; i < results.size(); ++i) known_[node.results[i].id] = {std::move(results[i]), stale};
  return known_[v.id];
}

void CheckedRun::before(int call) {
  if (flags().verify < 3) return;
  // A value that was computed again has several buffers: the one that this call knows counts.
  const Program& program = executable_.program();
  for (const auto* list : {&call_at(call).reads, &call_at(call).writes})
    for (int b : *list)
      if (const Value v = program.buffers[at(b)].value) buffer_of_value_[at(v.id)] = b;
  known_.clear();
  nodes_here_ = call_at(call).nodes;
  call_ = call;
  const Graph& g = executable_.graph();
  std::vector<int> fresh;
  for (int n : call_at(call).nodes) {
    const bool of_all_ranks = g.nodes()[at(n)].op->lowering == Lowering::kCollective && communicator().num_ranks() > 1;
    if (of_all_ranks) continue;  // the reference knows this rank only
    for (Value r : g.nodes()[at(n)].results) {
      // The second phase of a sum no longer has its inputs: the first has left what to expect.
      if (expected_.count(r.id) != 0) continue;
      if (const Known& wanted = value(r); !wanted.stale) expected_[r.id] = {wanted.array}, fresh.push_back(r.id);
    }
  }
  for (int id : fresh) expected_[id].largest_input = largest_known();
}

double CheckedRun::largest_known() const {
  double largest = 0;
  for (const auto& [id, known] : known_) largest = std::max(largest, largest_finite(known.array));
  return largest;
}

/// Whether what the kernel rounds to bf16 goes on inside it.
bool CheckedRun::rounds_inside(int call) const {
  const Graph& g = executable_.graph();
  std::set<int> narrow;  // values made here
  for (int n : call_at(call).nodes) {
    const Node& node = g.nodes()[at(n)];
    const bool attends = node.op->lowering == Lowering::kAttention || node.op->lowering == Lowering::kAttentionGrad;
    for (Value in : node.inputs) {
      for (int p = g.producer_of(in); p >= 0 && g.nodes()[at(p)].op->lowering == Lowering::kView; p = g.producer_of(in))
        in = g.nodes()[at(p)].inputs[0];
      if (narrow.count(in.id) != 0 || (attends && g.type_of(in).dtype == DType::bf16)) return true;
    }
    for (Value r : node.results)
      if (g.type_of(r).dtype == DType::bf16) narrow.insert(r.id);
  }
  return false;
}

void CheckedRun::compare(int call) {
  const bool rounds = rounds_inside(call);
  for (int b : call_at(call).writes) {
    const Value v = executable_.program().buffers[at(b)].value;
    if (!v || expected_.count(v.id) == 0) continue;
    const auto& [want, largest_input] = expected_[v.id];
    const RefArray got = read(b);
    // Sums may cancel: errors are judged by the size of what went in, too. A rounding to bf16 on the way may fall to the other side.
    const double tolerance = (rounds ? 0x1p-7 : 2e-4) * largest_finite(want) + 1e-5 * largest_input + 1e-6;
    for (size_t i = 0; i < want.data.size(); ++i) {
      const double w = want.data[i], x = got.data[i];
      const bool same =
          w == x || (std::isnan(w) && std::isnan(x)) || std::abs(w - x) <= tolerance + rounding_step(got.type.dtype, w, x);
      WS_ASSERT(same, "VERIFY: kernel {} wrote {} where the reference has {}, element {} of %{}", title(call_at(call)), x, w, i,
                v.id);
    }
  }
  for (int b : call_at(call).writes) written_before_.push_back(b);
  for (auto it = expected_.begin(); it != expected_.end();)
    it = writes_value(call, it->first) ? expected_.erase(it) : std::next(it);
}

bool CheckedRun::writes_value(int call, int value) const {
  const auto& writes = call_at(call).writes;
  return std::find(writes.begin(), writes.end(), buffer_of_value_[at(value)]) != writes.end();
}

void CheckedRun::after(int call, double ns) {
  WS_LOG(5, "{:4} {:<50} {:9.1f} us {:8.1f} GFLOP/s {:7.1f} GB/s", call, title(call_at(call)), ns / 1e3,
         call_at(call).cost.flops / std::max(ns, 1.0), call_at(call).cost.bytes / std::max(ns, 1.0));
  if (flags().verify >= 3) compare(call);
  if (flags().nan_check) check_finite(call);
  if (flags().poison) {
    check_guards(call);
    const Program& p = executable_.program();
    for (size_t b = 0; b < p.buffers.size(); ++b)
      if (last_touch_[b] == call && executable_.plan().shares_with[b] < 0) poison(static_cast<int>(b));
  }
  if (tracing()) {
    const int64_t end = trace_now_ns();
    const KernelCall& k = call_at(call);
    trace_event(title(k), "kernel", end - static_cast<int64_t>(ns), end,
                fmt::format("\"flops\": {}, \"bytes\": {}", k.cost.flops, k.cost.bytes));
  }
}

}  // namespace ws
