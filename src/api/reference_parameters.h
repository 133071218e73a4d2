// The parameters of a model in the names and layout of a recorded reference run: where W_Q, W_K and W_V of a transformer
// block are three arrays, ours are columns of one.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "support/json.h"
#include "wholestep/module.h"

namespace ws {

/// One array of the recording, and the columns of our parameter that hold it.
struct ReferenceParameter {
  std::string name;             // "2.TransformerBlock.1", "blks/0/attention/W_qkv/kernel"
  Variable variable;
  int64_t first_column = 0, num_columns = 0;   // of the last axis
};

/// `reference_case` is the case's JSON: its "model" describes `model`, its "params" lists names and shapes. An Error names the
/// first parameter that does not fit.
std::vector<ReferenceParameter> match_reference_parameters(const Module& model, const Json& reference_case);

/// Sets every parameter from `tensor_named(name)`, called with the recording's name.
void load_reference_parameters(const std::vector<ReferenceParameter>& matched, const std::function<Tensor(const std::string& name)>& tensor_named);

/// The present value in the recording's layout.
Tensor reference_value(const ReferenceParameter& parameter);

}  // namespace ws
