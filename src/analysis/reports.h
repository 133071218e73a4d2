// The reports on a program: made from kernels and plan, printed as text and JSON. Public structs are in wholestep/analysis.h.
#pragma once
#include "memory/plan.h"
#include "runtime/executable.h"
#include "support/json.h"
#include "wholestep/analysis.h"

namespace ws {

CostAnalysis analyse_cost(const Program& program);
MemoryAnalysis analyse_memory(const Program& program, const MemoryPlan& plan, int64_t scratch_bytes);
/// Reads come from the level of memory that held the value since it was last touched, in the rhythm of one step after the other.
Prediction predict_time(const Program& program, const MemoryPlan& plan, const Roofs& roofs);
/// `measured_seconds` 0: from the prediction alone.
Classification classify_step(const Program& program, const Prediction& prediction, const Roofs& roofs, double measured_seconds);
/// `seconds` by call.
Profile make_profile(const Program& program, const std::vector<double>& seconds, const Prediction& prediction,
                     const Roofs& roofs);

Json to_json(const CostAnalysis& cost);
Json to_json(const MemoryAnalysis& memory);
Json to_json(const Prediction& prediction);
Json to_json(const Profile& profile);
Json to_json(const Classification& classification);

}  // namespace ws
