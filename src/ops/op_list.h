// Declares one function per line of all_ops.inc: NAME_op() gives the definition of op NAME.
#pragma once
#include "ir/op_def.h"

namespace ws::ops {
#define WS_OP(kind, name) const OpDef& name##_op();
#include "wholestep/all_ops.inc"
#undef WS_OP
}  // namespace ws::ops
