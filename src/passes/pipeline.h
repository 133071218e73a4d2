// The pipeline: the one list of passes, run to a fixpoint between the trace and the schedule.
#pragma once
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "passes/pass.h"

namespace ws {

struct PipelineOptions {
  std::set<std::string> disabled = {};  // names of passes and rules
  std::string dump_directory = {};      // NAME.NN_pass.ir after each pass of graph NAME, NAME.00_trace.ir before; empty: none
  bool time = false;                    // a note for each pass
  int verify = 0;                       // 1: the graph before and after; 2: after every pass
};

struct PassStatistics {
  std::string name;
  double seconds = 0;
  bool changed = false;
  int num_nodes = 0;                // after it
  std::map<std::string, int> hits;  // by rule
};

struct PipelineResult {
  Graph graph;
  std::vector<PassStatistics> passes;  // in the order run
};

PipelineResult run_pipeline(const Graph& graph, const PipelineOptions& options = {});

/// For help texts and for checking names given to DISABLE.
std::span<const Pass> all_passes();
std::vector<std::string> pass_and_rule_names();

}  // namespace ws
