// A climb's JSON as a table for the terminal, charts and one self-contained page.
#pragma once
#include <string>
#include <vector>

#include "support/json.h"

namespace ws::cli {

/// Rungs, controls, roofs, cells, traps and the final check, as text.
std::string report_table(const Json& report);
/// Throughput of rungs and controls with what was predicted, ratios to R1.
std::string report_chart(const Json& report);
/// The loss of the final check, raw and smoothed. Empty where it did not run.
std::string report_loss_chart(const Json& report);
/// Chart, table, classification, receipts, memory map, loss curve, what to try next.
std::string report_page(const Json& report);
/// Two reports rung by rung: throughput, ratio, temporaries, walls.
std::string compare_reports(const Json& a, const Json& b, const std::string& name_a, const std::string& name_b);

/// Rungs and controls in the order in which they are shown: R0, R1, R2 naive, R2 leak, R2, R3 control, R3, ..
std::vector<Json> in_order(const Json& report);
/// What cannot be read off the ratios, in lines: rungs that the machine was too noisy for, and that one round cannot tell noise.
std::vector<std::string> noise_notes(const Json& report);

}  // namespace ws::cli
