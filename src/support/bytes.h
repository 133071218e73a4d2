// Amounts of memory as people write them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ws {

/// "2GiB", "512 MiB", "1.5G", "4096": bytes; K, M, G, T are powers of 1024 with or without "iB" or "B". An Error that names `source`
/// for anything else, for what is not above 0 and for what 2^62 bytes do not hold.
int64_t parse_bytes(std::string_view text, std::string_view source);
/// "1.25 GiB", "512 B": three figures.
std::string bytes_text(double bytes);

}  // namespace ws
