// Models and optimizers as named variables, for checkpoints.
#pragma once
#include "io/tensors.h"
#include "wholestep/module.h"
#include "wholestep/optimizers.h"

namespace ws {

/// Parameters, then buffers, by dotted name.
NamedVariables model_state(const Module& model);
/// Moments, counters and the learning rate. An Error where two have one name.
NamedVariables optimizer_state(const Optimizer& optimizer);

}  // namespace ws
