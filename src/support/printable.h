// Bytes that came from outside, in a message: one line whatever they are, and short.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace ws {

/// Control bytes and what is not UTF-8 as \xNN, the rest as it is; ".." stands for what follows the first `most_bytes`.
std::string printable(std::string_view bytes, size_t most_bytes = 40);

}  // namespace ws
