// What the tape needs to know of checkpoint().
#pragma once
#include <memory>

namespace ws {

struct TapeNode;

/// Called for each node recorded inside the checkpoint that is running on this thread.
void note_in_checkpoint(const std::shared_ptr<TapeNode>& node);

}  // namespace ws
