#include "support/communicator.h"

#include <cstring>

namespace ws {
namespace {

Communicator alone;
std::unique_ptr<Communicator>& current() {
  static std::unique_ptr<Communicator> instance;
  return instance;
}

}  // namespace

void Communicator::all_reduce(const void* in, void* out, int64_t count, DType dtype, Reduction) {
  if (in != out && count > 0) std::memcpy(out, in, static_cast<size_t>(count) * size_of(dtype));
}

void Communicator::all_gather(const void* in, void* out, std::span<const int64_t> bytes) {
  if (in != out && bytes[0] > 0) std::memcpy(out, in, static_cast<size_t>(bytes[0]));
}

void Communicator::begin_sum(int64_t, std::span<const Numbers> bucket) {
  for (const Numbers& n : bucket) all_reduce(n.data, n.data, n.count, DType::f32, Reduction::sum);
}

Communicator& communicator() { return current() ? *current() : alone; }
void set_communicator(std::unique_ptr<Communicator> communicator) { current() = std::move(communicator); }

}  // namespace ws
