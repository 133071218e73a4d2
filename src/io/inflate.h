// Deflated bytes (zlib), given on in pieces: nothing is allocated by sizes that the input claims.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "io/file.h"

namespace ws {

enum class Deflated : uint8_t { raw, gzip };  ///< raw: inside a zip archive

/// Takes a piece; false ends the reading.
using ByteSink = std::function<bool(Bytes)>;

/// Inflates `bytes` and returns how many bytes came out. An Error names `name` where the stream is damaged, cut short, followed by other
/// bytes, or gives more than `limit` bytes. A gzip file's own checksum is verified when the stream ends.
uint64_t inflate_bytes(Bytes bytes, Deflated format, uint64_t limit, const std::string& name, const ByteSink& sink);

/// Deflate shrinks at most 1,032 times: an Error where `bytes` cannot hold `claimed` bytes.
void check_inflated_size(Bytes bytes, uint64_t claimed, const std::string& name);

uint32_t crc32_of(uint32_t so_far, Bytes bytes);

}  // namespace ws
