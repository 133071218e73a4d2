// A few ops of the IR tests' own, so that the IR is tested without the real table (which lies above it in include order).
#pragma once
#include "ir/graph.h"

namespace ws::test {

/// Fresh op of one name: every field filled with the simplest thing that works.
OpDef elementwise(std::string_view name, int arity, double (*f)(const double*));

}  // namespace ws::test
