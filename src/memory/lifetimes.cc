#include "memory/lifetimes.h"

#include "support/error.h"

namespace ws {

bool lives_in_arena(const ProgramBuffer& buffer, bool outputs_outside) {
  if (buffer.alias_of >= 0) return false;
  return buffer.role == ProgramBuffer::Role::kTemporary || (buffer.role == ProgramBuffer::Role::kOutput && !outputs_outside);
}

std::vector<Lifetime> lifetimes(const Program& program) {
  std::vector<Lifetime> lives(program.buffers.size());
  const int num_calls = static_cast<int>(program.calls.size());
  const auto touch = [&](int buffer, int call) {
    WS_ASSERT(buffer >= 0 && static_cast<size_t>(buffer) < lives.size(), "call {} of {} names buffer {}", call, program.name,
              buffer);
    Lifetime& life = lives[static_cast<size_t>(buffer)];
    if (life.first < 0) life.first = call;
    life.last = call;
  };
  for (int c = 0; c < num_calls; ++c) {
    const KernelCall& call = program.calls[static_cast<size_t>(c)];
    for (int buffer : call.reads) {
      touch(buffer, c);
      const ProgramBuffer& b = program.buffers[static_cast<size_t>(buffer)];
      bool written = lives[static_cast<size_t>(buffer)].first < c || b.role == ProgramBuffer::Role::kInput || b.alias_of >= 0;
      for (int w : call.writes) written = written || w == buffer;  // a kernel's own scratch
      WS_ASSERT(written || b.num_elements == 0, "call {} ({}) of {} reads buffer {} '{}' before anything writes it", c, call.name,
                program.name, buffer, b.name);
    }
    for (int buffer : call.writes) touch(buffer, c);
  }
  for (const View& output : program.outputs)
    if (output.buffer >= 0) touch(output.buffer, num_calls);
  return lives;
}

}  // namespace ws
