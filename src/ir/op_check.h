// What can be said about a call of an op before its shape rule runs: number of inputs, names and kinds of attributes.
// The parser makes a user's error of it, add_node and verify an internal one.
#pragma once
#include <string>

#include "ir/op_def.h"

namespace ws {

/// Empty where all is well, else what is wrong ("matmul takes 2 inputs, 3 given").
std::string find_mistake(const OpDef& op, size_t num_inputs, const Attrs& attrs);
std::string_view name_of(AttrSpec::Kind kind);

}  // namespace ws
