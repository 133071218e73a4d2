// Derived values: what compiled programs keep of Variables from call to call (passes/derive_state.h). A value is right for one version
// of its Variable; a program that writes the Variable writes the value too, any other write makes it stale.
#pragma once
#include <memory>
#include <vector>

#include "passes/derive_state.h"
#include "tensor/tensor_impl.h"
#include "tensor/variable.h"

namespace ws {

class DerivedValue {
 public:
  DerivedValue(std::shared_ptr<Variable::Slot> slot, DerivedInput how) : slot_(std::move(slot)), how_(std::move(how)) {}
  bool is(const Variable::Slot* slot, const DerivedInput& how) const {
    return slot_.get() == slot && how_.op == how.op && how_.attrs == how.attrs;
  }
  /// Where it lies, computed anew if the Variable was written since. Under VERIFY >= 1 an InternalError if it should not have to be
  /// computed anew but differs.
  void* up_to_date();
  /// After a program that keeps it: it is right for the Variable's version by now.
  void follow() { version_ = slot_->version; }

 private:
  std::shared_ptr<TensorImpl> compute() const;
  std::shared_ptr<Variable::Slot> slot_;
  DerivedInput how_;
  std::shared_ptr<TensorImpl> value_;
  uint64_t version_ = 0;
};

/// Those of one Compiled object.
class DerivedValues {
 public:
  std::shared_ptr<DerivedValue> of(const std::shared_ptr<Variable::Slot>& slot, const DerivedInput& how);

 private:
  std::vector<std::shared_ptr<DerivedValue>> values_;
};

}  // namespace ws
