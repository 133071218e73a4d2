#include "schedule/loops.h"

#include <algorithm>
#include <bit>

#include "schedule/loop_nest.h"
#include "support/bf16.h"
#include "support/error.h"

namespace ws {
namespace {

using Kind = LoopInstr::Kind;
size_t at(int i) { return static_cast<size_t>(i); }

/// An access before the loop's dims are final: where it points, and its stride along each cut.
struct Draft {
  LoopAccess access;
  int buffer = -1;
  int64_t offset = 0;
  std::vector<int64_t> strides;  // by nest dim, outermost first
  std::array<int64_t, 2> fold{0, 0};
  bool row_level = false;
  bool is_target = false;  // of a column reduction: dense [units, C]
};

class LoopBuilder {
 public:
  LoopBuilder(const LoopContext& c, int group)
      : c_(c), index_(group), group_(c.groups.list[at(group)]), body_nodes_(c.materialized.bodies[at(group)]), nest_(c, group) {}

  LoopCall build() {
    if (body_nodes_.empty()) return {};
    for (int n : body_nodes_) add_node(n);
    for (int n : body_nodes_) add_stores(n);
    if (!has_effect_) return {};
    collapse();
    return finish();
  }

 private:
  const Node& node(int n) const { return c_.graph.nodes()[at(n)]; }
  bool own(int n) const { return c_.groups.of_node[at(n)] == index_; }

  int add_draft(Draft d) {
    drafts_.push_back(std::move(d));
    return static_cast<int>(drafts_.size()) - 1;
  }
  int add_instr(LoopInstr i) {
    body_.push_back(std::move(i));
    return static_cast<int>(body_.size()) - 1;
  }

  int load(Value v, bool swapped) {
    const Strided& s = c_.views.of(v);
    const Shape& shape = c_.graph.type_of(v).shape;
    Draft d;
    d.access.dtype = c_.graph.type_of(v).dtype;
    if (swapped) d.access.step = Step::kSwapped;
    d.row_level = nest_.at_row_level(v);
    const bool is_tile = group_.kind == Group::Kind::kGemm && s.base == node(group_.opener).results[0];
    d.buffer = is_tile ? -1 : c_.buffer_read_by(s.base, index_);
    if (is_tile) d.access.dtype = DType::f32;
    d.offset = s.offset;
    d.strides = nest_.strides(shape, s.strides, d.row_level ? nest_.row_scale() : 1);
    for (size_t i = 0; i < body_.size(); ++i) {
      if (body_[i].kind != Kind::kLoad) continue;
      const Draft& o = drafts_[at(body_[i].access)];
      if (o.buffer == d.buffer && o.offset == d.offset && o.strides == d.strides && o.access == d.access &&
          o.row_level == d.row_level)
        return static_cast<int>(i);
    }
    LoopInstr instr;
    instr.kind = Kind::kLoad;
    instr.dtype = c_.graph.type_of(v).dtype;
    instr.access = add_draft(std::move(d));
    return add_instr(std::move(instr));
  }

  int scalar(Value v) {
    const Node& constant = node(c_.graph.producer_of(c_.views.of(v).base));
    LoopInstr instr;
    instr.kind = Kind::kScalar;
    instr.dtype = c_.graph.type_of(v).dtype;
    const int64_t bits = scalar_bits(instr.dtype, constant.attrs.number("value"));
    for (size_t i = 0; i < body_.size(); ++i)
      if (body_[i].kind == Kind::kScalar && body_[i].dtype == instr.dtype && scalars_[at(body_[i].access)] == bits)
        return static_cast<int>(i);
    instr.access = static_cast<int>(scalars_.size());
    scalars_.push_back(bits);
    scalar_types_.push_back(instr.dtype);
    return add_instr(std::move(instr));
  }

  /// The body value for input v of a node: computed here, a constant, or loaded.
  int operand(Value v, bool swapped = false) {
    const Value base = c_.views.of(v).base;
    if (auto it = value_of_.find(base.id); it != value_of_.end() && !swapped) return it->second;
    if (is_scalar_constant(c_.graph, c_.views, v)) return scalar(v);
    return load(v, swapped);
  }

  void add_node(int n) {
    const Node& x = node(n);
    if (nest_.folds(n)) return add_fold(n);
    if (n == group_.opener && group_.kind == Group::Kind::kGemm) {
      value_of_[x.results[0].id] = load(x.results[0], false);
      return;
    }
    LoopInstr instr;
    for (Value v : x.inputs) instr.operands.push_back(operand(v, x.op->has(kSwapsPairs)));
    instr.dtype = c_.graph.type_of(x.results[0]).dtype;
    if (nest_.is_reduce(n)) {
      const ReduceShape r = reduce_shape(c_.graph, x);
      instr.is_max = r.is_max;
      if (r.along_row()) {
        instr.kind = Kind::kReduceRow;
        const int id = add_instr(std::move(instr));
        if (r.whole())
          store_partial(n, id);
        else
          value_of_[x.results[0].id] = id;
        return;
      }
      instr.kind = Kind::kReduceColumn;
      Draft target;
      target.access = {instr.dtype, Step::kUnit};
      target.buffer = r.two_phase() ? c_.partial_of(n) : c_.buffer_of(x.results[0]);
      target.is_target = true;
      target.strides.assign(nest_.rank(), 0);
      instr.access = add_draft(std::move(target));
      add_instr(std::move(instr));
      has_effect_ = true;
      return;
    }
    instr.kind = Kind::kOp;
    instr.op = x.op;
    instr.attrs = x.attrs;
    if (x.op->name == "iota") instr.attrs = iota_attrs(x);
    value_of_[x.results[0].id] = add_instr(std::move(instr));
  }
  /// iota counts along an axis of its own shape: say which dim of the nest that is.
  Attrs iota_attrs(const Node& x) const {
    const auto axis = static_cast<int>(x.attrs.integer("axis"));
    Attrs attrs = {{"dtype", x.attrs.dtype("dtype")}};
    attrs.set("axis", static_cast<int64_t>(nest_.dim_of_axis(c_.graph.type_of(x.results[0]).shape, axis)));
    attrs.set("shape", std::vector<int64_t>{});
    return attrs;
  }

  void add_fold(int n) {
    const ReduceShape r = reduce_shape(c_.graph, node(n));
    const Value v = node(n).results[0];
    Draft d;
    d.access = {c_.graph.type_of(v).dtype, Step::kUnit};
    d.buffer = c_.partial_of(n);
    d.fold = {r.blocks(), r.along_row() ? 1 : r.inner};
    for (size_t i = 0; i < nest_.rank(); ++i)  // partials lie [outer, blocks, inner]
      d.strides.push_back(nest_.low(i) >= r.inner ? nest_.low(i) * r.blocks() : nest_.low(i));
    LoopInstr instr;
    instr.kind = Kind::kFold;
    instr.dtype = d.access.dtype;
    instr.is_max = r.is_max;
    instr.access = add_draft(std::move(d));
    value_of_[v.id] = add_instr(std::move(instr));
  }

  void store_partial(int n, int id) {
    Draft d;
    d.access = {body_[at(id)].dtype, Step::kSplat};
    d.buffer = c_.partial_of(n);
    d.strides.assign(nest_.rank(), 0);
    d.row_level = true;
    store(id, std::move(d));
  }
  void store(int id, Draft d) {
    LoopInstr instr;
    instr.kind = Kind::kStore;
    instr.dtype = d.access.dtype;
    instr.operands = {id};
    pending_stores_.emplace_back(std::move(instr), std::move(d));
    has_effect_ = true;
  }

  void add_stores(int n) {
    const Value v = node(n).results[0];
    const bool again = is_copy(v);
    if (!again && (!(own(n) || nest_.folds(n)) || !c_.materialized.stored[at(v.id)])) return;
    if (own(n) && c_.groups.fold_of_node[at(n)] >= 0) return;
    auto it = value_of_.find(v.id);
    if (it == value_of_.end()) return;  // a column reduction wrote itself
    Draft d;
    d.row_level = nest_.at_row_level(v);
    d.access = {c_.graph.type_of(v).dtype, d.row_level ? Step::kSplat : Step::kUnit};
    const Shape& shape = c_.graph.type_of(v).shape;
    if (const auto part = c_.parts.find(v.id); part != c_.parts.end()) {
      d.buffer = c_.buffer_of(part->second.whole);
      d.offset = part->second.offset;
      d.strides = nest_.strides(shape, part->second.strides, 1);
    } else {
      d.buffer = again ? c_.copy_of(v, index_) : c_.buffer_of(v);
      d.strides = nest_.strides(shape, dense_strides(shape), d.row_level ? nest_.row_scale() : 1);
    }
    store(it->second, std::move(d));
  }

  bool is_copy(Value v) const {
    const auto copies = c_.materialized.copies.find(index_);
    return copies != c_.materialized.copies.end() && copies->second.count(v.id) != 0;
  }

  void collapse() {
    for (auto& [instr, draft] : pending_stores_) {
      instr.access = add_draft(std::move(draft));
      add_instr(std::move(instr));
    }
    for (size_t d = nest_.rank() - 1; d-- > 0;) {
      if (!nest_.may_merge(d)) continue;
      const auto continues = [&](const Draft& a) { return a.is_target || a.strides[d] == a.strides[d + 1] * nest_.dim(d + 1); };
      const bool merges = nest_.dim(d) == 1 || nest_.dim(d + 1) == 1 || std::all_of(drafts_.begin(), drafts_.end(), continues);
      if (!merges && !nest_.must_merge(d)) continue;
      if (!merges)
        for (Draft& a : drafts_)
          if (!continues(a)) make_dense(a);
      merge_dim(d);
    }
    // A hole always has rows and columns, and so have sums over rows.
    if ((group_.kind == Group::Kind::kGemm || nest_.walk() == Walk::kRowBlocks) && nest_.rank() == 1) {
      nest_.push_outer();
      for (Draft& a : drafts_) a.strides.insert(a.strides.begin(), 0);
    }
  }
  void merge_dim(size_t d) {
    for (Draft& a : drafts_) {
      if (nest_.dim(d + 1) == 1) a.strides[d + 1] = a.strides[d];
      a.strides.erase(a.strides.begin() + static_cast<std::ptrdiff_t>(d));
    }
    nest_.merge(d);
  }
  void make_dense(Draft& a) {
    WS_ASSERT(a.buffer >= 0 && a.access.step != Step::kSplat, "a tile or a store that no loop nest can walk");
    View window;
    window.buffer = a.buffer;
    window.offset = a.offset;
    window.dims = Shape(nest_.dims());
    for (size_t i = 0; i < nest_.rank(); ++i) window.strides[i] = a.strides[i];
    a.buffer = c_.copy_dense(window, a.access.dtype);
    a.offset = 0;
    const auto dense = dense_strides(window.dims);
    for (size_t i = 0; i < nest_.rank(); ++i) a.strides[i] = dense[i];
  }

  /// Pair swapping needs a unit stride: copy what has another.
  void settle_steps() {
    for (Draft& a : drafts_) {
      if (a.is_target) continue;
      int64_t& inner = a.strides.back();
      if (a.access.step == Step::kSwapped) {
        if (inner != 1) make_dense(a);
        continue;
      }
      const bool single = nest_.dims().back() == 1;
      if (a.row_level && nest_.walk() != Walk::kElements)
        a.access.step = Step::kSplat;
      else if (single) {
        inner = 1;
        a.access.step = Step::kUnit;
      } else {
        a.access.step = inner == 0 ? Step::kSplat : inner == 1 ? Step::kUnit : Step::kStrided;
      }
    }
  }
  /// Loads before stores and targets, as LoopKernel promises.
  void sort_accesses() {
    std::vector<bool> written(drafts_.size(), false);
    for (const LoopInstr& i : body_)
      if (i.kind == Kind::kStore || i.kind == Kind::kReduceColumn) written[at(i.access)] = true;
    std::vector<int> place(drafts_.size());
    std::vector<Draft> sorted;
    for (bool stores : {false, true})
      for (size_t a = 0; a < drafts_.size(); ++a)
        if (written[a] == stores) {
          place[a] = static_cast<int>(sorted.size());
          sorted.push_back(drafts_[a]);
        }
    drafts_ = std::move(sorted);
    for (LoopInstr& i : body_)
      if (i.access >= 0 && i.kind != Kind::kScalar) i.access = place[at(i.access)];
  }

  LoopCall finish() {
    settle_steps();
    sort_accesses();
    auto kernel = std::make_shared<LoopKernel>();
    kernel->walk = nest_.walk();
    kernel->rank = static_cast<int>(nest_.rank());
    for (const Draft& a : drafts_) kernel->accesses.push_back(a.access);
    kernel->scalars = scalar_types_;
    kernel->body = body_;
    LoopCall call;
    call.kernel = c_.kernels.emplace(kernel->key(), kernel).first->second;
    call.dims = nest_.dims();
    for (const Draft& a : drafts_) {
      View v;
      v.buffer = a.buffer;
      v.offset = a.offset;
      v.dims = Shape(nest_.dims());
      for (size_t i = 0; i < nest_.rank(); ++i) v.strides[i] = a.strides[i];
      call.accesses.push_back(v);
      call.folds.push_back(a.fold);
    }
    call.scalars = scalars_;
    return call;
  }

  const LoopContext& c_;
  int index_;
  const Group& group_;
  const std::vector<int>& body_nodes_;
  LoopNest nest_;
  bool has_effect_ = false;
  std::vector<Draft> drafts_;
  std::vector<LoopInstr> body_;
  std::vector<std::pair<LoopInstr, Draft>> pending_stores_;
  std::vector<int64_t> scalars_;
  std::vector<DType> scalar_types_;
  std::map<int, int> value_of_;  // base value id -> body value
};

}  // namespace

int64_t scalar_bits(DType dtype, double value) {
  switch (dtype) {
    case DType::f32: return std::bit_cast<uint32_t>(static_cast<float>(value));
    case DType::bf16: return std::bit_cast<uint32_t>(widen(narrow(static_cast<float>(value))));
    case DType::f64: return std::bit_cast<int64_t>(value);
    case DType::i32: return static_cast<int64_t>(static_cast<uint32_t>(static_cast<int32_t>(value)));
    case DType::u32: return static_cast<int64_t>(static_cast<uint32_t>(value));
    case DType::boolean: return value != 0 ? 1 : 0;
  }
  return 0;
}

LoopCall build_loop(const LoopContext& context, int group) { return LoopBuilder(context, group).build(); }

LoopCall build_fill(int buffer, DType dtype, int64_t count, double value) {
  auto kernel = std::make_shared<LoopKernel>();
  kernel->accesses = {{dtype, Step::kUnit}};
  kernel->scalars = {dtype};
  LoopInstr scalar, store;
  scalar.kind = Kind::kScalar;
  scalar.dtype = store.dtype = dtype;
  scalar.access = 0;
  store.kind = Kind::kStore;
  store.operands = {0};
  store.access = 0;
  kernel->body = {scalar, store};
  LoopCall call;
  call.kernel = kernel;
  call.dims = {count};
  View v;
  v.buffer = buffer;
  v.dims = Shape{count};
  v.strides[0] = 1;
  call.accesses = {v};
  call.folds = {{0, 0}};
  call.scalars = {scalar_bits(dtype, value)};
  return call;
}

std::vector<std::array<int, 2>> in_place_pairs(const LoopCall& call) {
  std::vector<std::array<int, 2>> pairs;
  if (call.kernel == nullptr) return pairs;  // rows are stored in their last pass, after all reads
  for (const LoopInstr& store : call.kernel->body) {
    if (store.kind != Kind::kStore) continue;
    const View& w = call.accesses[at(store.access)];
    const LoopAccess& wa = call.kernel->accesses[at(store.access)];
    for (const LoopInstr& load : call.kernel->body) {
      if (load.kind != Kind::kLoad) continue;
      const View& r = call.accesses[at(load.access)];
      const LoopAccess& ra = call.kernel->accesses[at(load.access)];
      if (r.buffer < 0 || r.offset != w.offset || size_of(ra.dtype) != size_of(wa.dtype) || ra.step != wa.step ||
          r.strides != w.strides)
        continue;
      const bool read_elsewhere = std::any_of(call.accesses.begin(), call.accesses.end(),
                                              [&](const View& o) { return &o != &r && o.buffer == r.buffer; });
      if (!read_elsewhere) pairs.push_back({w.buffer, r.buffer});
    }
  }
  return pairs;
}

}  // namespace ws
