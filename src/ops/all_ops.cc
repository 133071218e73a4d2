// The table of ops, made from all_ops.inc, and the lookup by name.
#include <array>
#include <string_view>

#include "ops/op_list.h"
#include "support/error.h"

namespace ws {

namespace {

constexpr size_t kNumOps = 0
#define WS_OP(kind, name) +1
#include "wholestep/all_ops.inc"
#undef WS_OP
    ;

// Open addressing; at most half full, so a lookup is one hash and about one comparison.
class Table {
 public:
  Table() {
    size_t next = 0;
#define WS_OP(kind, name) list_[next++] = &ops::name##_op();
#include "wholestep/all_ops.inc"
#undef WS_OP
    for (const OpDef* op : list_) {
      WS_ASSERT(!find(op->name), "two ops are named {}", op->name);
      size_t slot = hash(op->name);
      while (slots_[slot % kSlots]) ++slot;
      slots_[slot % kSlots] = op;
    }
  }
  const OpDef* find(std::string_view name) const {
    for (size_t slot = hash(name);; ++slot) {
      const OpDef* op = slots_[slot % kSlots];
      if (!op || op->name == name) return op;
    }
  }
  std::span<const OpDef* const> list() const { return list_; }

 private:
  static constexpr size_t kSlots = 256;
  static_assert(kNumOps * 2 <= kSlots);
  static size_t hash(std::string_view name) {  // FNV-1a
    uint64_t h = 0xcbf29ce484222325u;
    for (char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return static_cast<size_t>(h ^ (h >> 29));
  }
  std::array<const OpDef*, kNumOps> list_{};
  std::array<const OpDef*, kSlots> slots_{};
};

const Table& table() {
  static const Table t;
  return t;
}

}  // namespace

const OpDef* find_op(std::string_view name) { return table().find(name); }
std::span<const OpDef* const> all_ops() { return table().list(); }

}  // namespace ws
