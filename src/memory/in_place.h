// In-place takeover: a kernel that reads a temporary for the last time may write its result over it.
#pragma once
#include <vector>

#include "memory/lifetimes.h"

namespace ws {

/// By buffer: the buffer whose memory it takes over, or -1. Each buffer is taken over at most once.
std::vector<int> find_takeovers(const Program& program, const std::vector<Lifetime>& lives, bool outputs_outside);
/// The half of the question that no lifetime decides: the pair is listed, sizes fit and no element is read after its place was written.
bool could_take_over(const Program& program, int c, int write, int read);
/// Whether call c may write `write` over `read`: the pair is listed, nothing in the call reads `read` in another order, elements are of
/// one size (threads run apart: a narrower element would land on what another thread has yet to read) and `read` ends here.
bool may_take_over(const Program& program, const std::vector<Lifetime>& lives, int c, int write, int read);

}  // namespace ws
