// Tensors and Variables in safetensors files.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "wholestep/data.h"

namespace ws {

using NamedVariables = std::vector<std::pair<std::string, Variable>>;

/// In the order of the file. I64 is read as i32 where every value fits, F16 as f32; other foreign dtypes are an Error.
NamedTensors load_tensors(const std::string& path);
/// Row-major, whatever view a tensor is.
void save_tensors(const std::string& path, const NamedTensors& tensors,
                  const std::vector<std::pair<std::string, std::string>>& metadata = {});

void save_variables(const std::string& path, const NamedVariables& variables);
/// Sets every variable from the tensor of its name. An Error names what the file lacks, what it has too much, and a tensor whose
/// shape or dtype differs; then no variable has changed.
void load_variables(const std::string& path, const NamedVariables& variables);

}  // namespace ws
