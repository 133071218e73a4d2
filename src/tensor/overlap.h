// Whether, and how much at a time, gradients travel while the backward pass goes on: what a Mesh asks for, made definite by this job.
#pragma once
#include <cstdint>

#include "wholestep/jit.h"

namespace ws {

bool overlaps(const Mesh& mesh);
/// The mesh's own, or the best for what all-reduce costs between these ranks: measured at the first call, where every rank must be.
int64_t bucket_bytes(const Mesh& mesh);

}  // namespace ws
