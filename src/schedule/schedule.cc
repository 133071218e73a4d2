// schedule(): graph -> groups -> what is stored -> kernel calls -> order. Each step has a file of its own.
#include <algorithm>
#include <cmath>
#include <map>

#include "schedule/concatenations.h"
#include "schedule/loops.h"
#include "schedule/materialize.h"
#include "schedule/order.h"
#include "schedule/products.h"
#include "schedule/repeat_late.h"
#include "schedule/split_buckets.h"
#include "support/error.h"

namespace ws {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

class Lowerer {
 public:
  Lowerer(const Graph& graph, const ScheduleOptions& options)
      : graph_(graph), views_(graph, options.input_layouts), groups_(make_groups(graph, views_, options.fuse)),
        materialized_(materialize(graph, views_, groups_, options.fuse)), loops_{graph_,
                                                                                 views_,
                                                                                 groups_,
                                                                                 materialized_,
                                                                                 [this](Value v) { return buffer_of(v); },
                                                                                 [this](Value v, int g) {
                                                                                   return buffer_read_by(v, g);
                                                                                 },
                                                                                 [this](Value v, int g) { return copy_of(v, g); },
                                                                                 [this](int n) { return partial_of(n); },
                                                                                 [this](const View& v, DType d) {
                                                                                   return copy_dense(v, d);
                                                                                 },
                                                                                 parts_,
                                                                                 kernels_} {
    if (options.fuse && options.repeat_late) repeat_late(graph_, views_, groups_, materialized_);
    if (options.fuse && options.write_parts) parts_ = find_parts(graph_, views_, groups_, materialized_);
  }

  Program run() {
    program_.name = graph_.name;
    buffer_of_value_.assign(at(graph_.num_values()), -1);
    make_inputs();
    make_outputs();
    for (int g = 0; g < static_cast<int>(groups_.list.size()); ++g) lower_group(g);
    copy_remaining_outputs();
    split_buckets(program_, priority_);
    order_calls(program_, priority_, donations_);
    return std::move(program_);
  }

 private:
  const Node& node(int n) const { return graph_.nodes()[at(n)]; }

  // --- buffers --------------------------------------------------------------------------------------------------------------
  int add_buffer(ProgramBuffer::Role role, DType dtype, int64_t count, std::string name, int index = -1) {
    ProgramBuffer b;
    b.role = role;
    b.dtype = dtype;
    b.num_elements = count;
    b.name = std::move(name);
    b.index = index;
    program_.buffers.push_back(std::move(b));
    return static_cast<int>(program_.buffers.size()) - 1;
  }
  void make_inputs() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const GraphInput& in = graph_.inputs()[i];
      const Type& t = graph_.type_of(in.value);
      const int b = add_buffer(ProgramBuffer::Role::kInput, t.dtype, t.shape.num_elements(), in.name, static_cast<int>(i));
      buffer_of_value_[at(in.value.id)] = b;
      program_.buffers[at(b)].value = in.value;
      program_.input_buffers.push_back(b);
    }
  }
  /// An output that is a stored value itself lives in its own buffer; views, inputs, constants and repeats are copied at the end.
  void make_outputs() {
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const GraphOutput& out = graph_.outputs()[i];
      const Type& t = graph_.type_of(out.value);
      const int b = add_buffer(ProgramBuffer::Role::kOutput, t.dtype, t.shape.num_elements(), out.name, static_cast<int>(i));
      View v;
      v.buffer = b;
      v.dims = t.shape;
      v.strides = dense_strides(t.shape);
      program_.outputs.push_back(v);
      program_.output_types.push_back(t);
      const int p = graph_.producer_of(out.value);
      const bool computed = p >= 0 && views_.is_base(out.value) && !is_scalar_constant(graph_, views_, out.value);
      if (computed && buffer_of_value_[at(out.value.id)] < 0) {
        buffer_of_value_[at(out.value.id)] = b;
        program_.buffers[at(b)].value = out.value;
      } else {
        copied_outputs_.push_back(static_cast<int>(i));
      }
      if (out.donates_input >= 0 && !is_unchanged(out)) donations_.push_back({b, program_.input_buffers[at(out.donates_input)]});
      if (out.donates_input >= 0 && is_unchanged(out))
        program_.buffers[at(b)].alias_of = program_.input_buffers[at(out.donates_input)];
    }
  }
  /// Nothing is written: it is the input, or it is empty (a rank without rows).
  bool is_unchanged(const GraphOutput& out) const {
    if (out.donates_input >= 0 && graph_.type_of(out.value).shape.num_elements() == 0) return true;
    return out.donates_input >= 0 && views_.of(out.value).base == graph_.inputs()[at(out.donates_input)].value &&
           views_.is_whole(out.value);
  }
  int buffer_of(Value base) {
    int& b = buffer_of_value_[at(base.id)];
    if (b < 0) {
      const Type& t = graph_.type_of(base);
      const int p = graph_.producer_of(base);
      b = add_buffer(ProgramBuffer::Role::kTemporary, t.dtype, t.shape.num_elements(),
                     fmt::format("%{} {}", base.id, p >= 0 ? node(p).op->name : "input"));
      program_.buffers[at(b)].value = base;
      if (is_scalar_constant(graph_, views_, base)) fill(b, t.dtype, 1, node(p).attrs.number("value"));
    }
    return b;
  }
  /// Of a value that its maker does not store, the copy is all there is.
  std::string name_of_copy(Value base) const {
    const bool is_second = materialized_.stored[at(base.id)];
    return fmt::format("%{} {}", base.id, is_second ? "again" : node(graph_.producer_of(base)).op->name);
  }
  /// Of the copy that group g makes of it.
  int copy_of(Value base, int g) {
    auto [it, fresh] = copies_.try_emplace({base.id, g}, -1);
    if (fresh) {
      const Type& t = graph_.type_of(base);
      it->second = add_buffer(ProgramBuffer::Role::kTemporary, t.dtype, t.shape.num_elements(), name_of_copy(base));
      program_.buffers[at(it->second)].value = base;
    }
    return it->second;
  }
  int buffer_read_by(Value base, int g) {
    if (materialized_.reads_copy.count({base.id, g}) == 0) return buffer_of(base);
    for (const auto& [maker, values] : materialized_.copies)
      if (values.count(base.id) != 0) return copy_of(base, maker);
    WS_ASSERT(false, "no group makes the copy of %{}", base.id);
  }
  int partial_of(int n) {
    auto [it, fresh] = partials_.try_emplace(n, -1);
    if (fresh) {
      const ReduceShape r = reduce_shape(graph_, node(n));
      it->second = add_buffer(ProgramBuffer::Role::kTemporary, graph_.type_of(node(n).results[0]).dtype,
                              r.outer * r.blocks() * r.inner, fmt::format("%{} blocks", node(n).results[0].id));
    }
    return it->second;
  }

  // --- calls ----------------------------------------------------------------------------------------------------------------
  void add_call(KernelCall call, int priority) {
    if (call.name.size() > 60) call.name = call.name.substr(0, 57) + "...";
    program_.calls.push_back(std::move(call));
    priority_.push_back(priority);
  }
  static double window_bytes(const View& v, DType dtype) {
    double n = 1;
    for (int i = 0; i < v.dims.rank(); ++i)
      if (v.strides[at(i)] != 0) n *= static_cast<double>(v.dims[i]);
    return n * static_cast<double>(size_of(dtype));
  }
  static void note(std::vector<int>& list, int b) {
    if (b >= 0 && std::find(list.begin(), list.end(), b) == list.end()) list.push_back(b);
  }
  void note_loop(KernelCall& call, const LoopCall& loop) {
    std::vector<bool> written(loop.accesses.size(), false);
    for (const LoopInstr& i : loop.kernel->body)
      if (i.kind == LoopInstr::Kind::kStore || i.kind == LoopInstr::Kind::kReduceColumn) written[at(i.access)] = true;
    for (size_t a = 0; a < loop.accesses.size(); ++a) {
      note(written[a] ? call.writes : call.reads, loop.accesses[a].buffer);
      if (loop.accesses[a].buffer >= 0 && loop.folds[a][0] == 0)
        call.cost.bytes += window_bytes(loop.accesses[a], loop.kernel->accesses[a].dtype);
      if (loop.folds[a][0] > 0) call.cost.bytes += static_cast<double>(program_.buffers[at(loop.accesses[a].buffer)].num_bytes());
    }
    for (const auto& pair : in_place_pairs(loop)) call.in_place.push_back(pair);
  }
  void fill(int buffer, DType dtype, int64_t count, double value) {
    KernelCall call;
    LoopCall loop = build_fill(buffer, dtype, count, value);
    loop.kernel = kernels_.emplace(loop.kernel->key(), loop.kernel).first->second;
    call.name = "fill";
    call.reason = "a constant that a library kernel or a caller reads";
    note_loop(call, loop);
    call.what = std::move(loop);
    add_call(std::move(call), 0);
  }
  int copy_dense(const View& window, DType dtype) {
    const int b = add_buffer(ProgramBuffer::Role::kTemporary, dtype, window.dims.num_elements(), "dense copy");
    View to = window;
    to.buffer = b;
    to.offset = 0;
    to.strides = dense_strides(window.dims);
    copy(window, to, dtype, current_priority_);
    return b;
  }
  void copy(const View& from, const View& to, DType dtype, int priority) {
    KernelCall call;
    LibraryCall library;
    library.views = {from, to};
    call.what = std::move(library);
    call.name = "copy";
    call.reason = "a window that the reader cannot walk";
    call.reads = {from.buffer};
    call.writes = {to.buffer};
    call.cost.bytes = window_bytes(from, dtype) + window_bytes(to, dtype);
    add_call(std::move(call), priority);
  }

  void lower_group(int g) {
    const Group& group = groups_.list[at(g)];
    const std::vector<int>& body = materialized_.bodies[at(g)];
    if (body.empty()) return;
    current_priority_ = group.opener;
    if (group.kind == Group::Kind::kLibrary) return lower_library(body[0], g);
    KernelCall call;
    call.path = node(body[0]).path;
    call.reason = group.reason;
    for (int n : body) call.nodes.push_back(n);
    if (group.elements == 0 && group.kind == Group::Kind::kLoop) return fill_empty(body);
    for (int n : body) add_flops(call, n, g);
    call.name = name_of_body(body, g);
    if (group.kind == Group::Kind::kLoop) {
      LoopCall loop = build_loop(loops_, g);
      if (loop.kernel == nullptr) return;
      note_loop(call, loop);
      call.what = std::move(loop);
    } else {
      lower_matmul(call, g, body);
    }
    add_call(std::move(call), current_priority_);
  }
  void add_flops(KernelCall& call, int n, int g) const {
    if (groups_.fold_of_node[at(n)] == g) return;
    const Node& x = node(n);
    std::vector<Type> in, out;
    for (Value v : x.inputs) in.push_back(graph_.type_of(v));
    for (Value v : x.results) out.push_back(graph_.type_of(v));
    call.cost.flops += x.op->cost(in, out, x.attrs).flops;
  }
  std::string name_of_body(const std::vector<int>& body, int g) const {
    std::string name;
    for (int n : body)
      name +=
          (name.empty() ? "" : "+") + (groups_.fold_of_node[at(n)] == g ? std::string("fold") : std::string(node(n).op->name));
    return name;
  }
  /// Sums over nothing are 0, maxima -inf.
  void fill_empty(const std::vector<int>& body) {
    for (int n : body) {
      const Value r = node(n).results[0];
      const Type& t = graph_.type_of(r);
      if (node(n).op->lowering == Lowering::kReduce && t.shape.num_elements() > 0 && materialized_.stored[at(r.id)])
        fill(buffer_of(r), t.dtype, t.shape.num_elements(), reduce_shape(graph_, node(n)).is_max ? -INFINITY : 0.0);
    }
  }

  static int bf16_parts_of(const Node& product) {
    const AttrValue* precision = product.attrs.find("precision");
    return precision == nullptr ? 0 : std::get<std::string>(*precision) == "high" ? 2 : 1;
  }
  void lower_matmul(KernelCall& call, int g, const std::vector<int>& body) {
    const Node& product = node(groups_.list[at(g)].opener);
    const Value result = product.results[0];
    auto operand = [&](Value v) {
      const Strided& s = views_.of(v);
      View w;
      w.buffer = buffer_read_by(s.base, g);
      w.offset = s.offset;
      w.dims = graph_.type_of(v).shape;
      w.strides = s.strides;
      return w;
    };
    auto dense = [&](const View& v, int input) { return copy_dense(v, graph_.type_of(product.inputs[at(input)]).dtype); };
    GemmCall gemm = build_product(operand(product.inputs[0]), operand(product.inputs[1]), product.attrs.flag("transpose_a"),
                                  product.attrs.flag("transpose_b"), dense);
    note(call.reads, gemm.a.buffer);
    note(call.reads, gemm.b.buffer);
    gemm.operand_dtype = graph_.type_of(product.inputs[0]).dtype;
    gemm.result_dtype = graph_.type_of(result).dtype;
    gemm.bf16_parts = bf16_parts_of(product);
    call.cost.bytes += window_bytes(gemm.a, gemm.operand_dtype) + window_bytes(gemm.b, gemm.operand_dtype);
    gemm.c.dims = Shape{gemm.batch, gemm.m, gemm.n};
    gemm.c.strides = dense_strides(gemm.c.dims);
    if (body.size() == 1) {
      gemm.c.buffer = buffer_of(result);
      note(call.writes, gemm.c.buffer);
      call.cost.bytes += window_bytes(gemm.c, gemm.result_dtype);
    } else {
      auto loop = std::make_unique<LoopCall>(build_loop(loops_, g));
      note_loop(call, *loop);
      gemm.store = std::move(loop);
    }
    call.what = std::move(gemm);
  }

  View written_part(const PartWindow& part, const Shape& dims) {
    View w;
    w.buffer = buffer_of(part.whole);
    w.offset = part.offset;
    w.dims = dims;
    w.strides = part.strides;
    return w;
  }
  void lower_library(int n, int g) {
    const Node& x = node(n);
    KernelCall call;
    call.path = x.path;
    call.reason = groups_.list[at(groups_.of_node[at(n)])].reason;
    call.name = std::string(x.op->name);
    call.nodes = {n};
    add_flops(call, n, -2);
    LibraryCall library;
    library.op = x.op->lowering == Lowering::kView ? nullptr : x.op;
    library.attrs = x.attrs;
    double copied_bytes = 0;  // by a concatenation
    for (Value v : x.inputs) {
      if (const auto part = parts_.find(v.id); part != parts_.end() && part->second.whole == x.results[0]) {
        library.views.push_back(written_part(part->second, graph_.type_of(v).shape));
        note(call.reads, library.views.back().buffer);  // so that it comes after those that write into it
        continue;
      }
      const Strided& s = views_.of(v);
      View w;
      w.buffer = buffer_read_by(s.base, g);
      w.offset = s.offset;
      w.dims = graph_.type_of(v).shape;
      w.strides = s.strides;
      copied_bytes += window_bytes({-1, 0, w.dims, dense_strides(w.dims)}, graph_.type_of(v).dtype);
      if (!takes(x, w, graph_.type_of(v).dtype)) {
        w.buffer = copy_dense(w, graph_.type_of(v).dtype);
        w.offset = 0;
        w.strides = dense_strides(w.dims);
      }
      note(call.reads, w.buffer);
      call.cost.bytes += window_bytes(w, graph_.type_of(v).dtype);
      library.views.push_back(w);
    }
    for (Value r : x.results) {
      View w;
      w.buffer = buffer_of(r);
      w.dims = library.op == nullptr ? graph_.type_of(x.inputs[0]).shape : graph_.type_of(r).shape;
      w.strides = dense_strides(w.dims);
      note(call.writes, w.buffer);
      call.cost.bytes += x.op->lowering == Lowering::kConcatenate ? copied_bytes : window_bytes(w, graph_.type_of(r).dtype);
      library.views.push_back(w);
    }
    if (x.op->name == "all_reduce") call.in_place.push_back({call.writes[0], call.reads[0]});
    call.what = std::move(library);
    add_call(std::move(call), current_priority_);
  }
  /// Attention walks any strides with whole heads in memory; copies, concatenation and padding walk anything; the rest wants dense.
  static bool takes(const Node& x, const View& v, DType dtype) {
    switch (x.op->lowering) {
      case Lowering::kView:
      case Lowering::kConcatenate:
      case Lowering::kPad: return true;
      case Lowering::kAttention:
      case Lowering::kAttentionGrad:
        if (dtype == DType::boolean) return true;  // a mask, often broadcast
        if (v.dims.rank() == 4) return v.dims.back() == 1 || v.strides[3] == 1;
        return is_dense(v.dims, v.strides);
      default: return is_dense(v.dims, v.strides);
    }
  }

  void copy_remaining_outputs() {
    for (int i : copied_outputs_) {
      const GraphOutput& out = graph_.outputs()[at(i)];
      const Type& t = graph_.type_of(out.value);
      const int to = program_.outputs[at(i)].buffer;
      if (program_.buffers[at(to)].alias_of >= 0 && is_unchanged(out)) continue;
      const Strided& s = views_.of(out.value);
      if (is_scalar_constant(graph_, views_, out.value)) {
        fill(to, t.dtype, t.shape.num_elements(), node(graph_.producer_of(s.base)).attrs.number("value"));
        continue;
      }
      View from = program_.outputs[at(i)];
      from.buffer = buffer_of(s.base);
      from.offset = s.offset;
      from.strides = s.strides;
      copy(from, program_.outputs[at(i)], t.dtype, static_cast<int>(graph_.nodes().size()));
    }
  }

  const Graph& graph_;
  ViewMap views_;
  Groups groups_;
  Materialized materialized_;
  Program program_;
  std::map<int, PartWindow> parts_;
  std::map<std::string, std::shared_ptr<const LoopKernel>> kernels_;
  LoopContext loops_;
  std::vector<int> buffer_of_value_, priority_, copied_outputs_;
  std::map<int, int> partials_;
  std::map<std::pair<int, int>, int> copies_;  // by value id and group
  std::vector<std::array<int, 2>> donations_;
  int current_priority_ = 0;
};

}  // namespace

Program schedule(const Graph& graph, const ScheduleOptions& options) { return Lowerer(graph, options).run(); }

}  // namespace ws
