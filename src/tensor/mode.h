// Modes: switches of a model, such as training or evaluation, that decide which ops a function calls. A program holds for the modes that
// its trace read.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace ws {

/// A switch and what the trace found.
struct ModeRead {
  std::shared_ptr<const bool> mode;
  bool value = false;
  bool holds() const { return *mode == value; }
};

/// The switch's value, noted by the trace in progress.
bool read_mode(const std::shared_ptr<bool>& mode);
void set_mode(bool& mode, bool value);

/// Grows whenever any mode changes: compiled functions look again at theirs.
uint64_t mode_changes();

}  // namespace ws
