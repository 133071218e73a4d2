#include "io/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "support/error.h"

namespace ws {
namespace {

constexpr size_t kPieceBytes = 1 << 16;
constexpr int kRawWindow = -15, kGzipWindow = 15 + 16;  // zlib's way to name the two formats

struct Stream {
  z_stream z = {};
  Stream(Deflated format, const std::string& name) {
    if (inflateInit2(&z, format == Deflated::raw ? kRawWindow : kGzipWindow) != Z_OK) fail("{}: out of memory", name);
  }
  ~Stream() { inflateEnd(&z); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

}  // namespace

uint64_t inflate_bytes(Bytes bytes, Deflated format, uint64_t limit, const std::string& name, const ByteSink& sink) {
  Stream stream(format, name);
  z_stream& z = stream.z;
  std::array<std::byte, kPieceBytes> piece;
  uint64_t total = 0;
  for (int status = Z_OK; status != Z_STREAM_END;) {
    if (z.avail_in == 0) {
      if (bytes.empty()) fail("{}: cut short: the compressed data has no end", name);
      size_t n = std::min<size_t>(bytes.size(), std::numeric_limits<uInt>::max());
      z.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));  // zlib reads it only
      z.avail_in = static_cast<uInt>(n);
      bytes = bytes.subspan(n);
    }
    z.next_out = reinterpret_cast<Bytef*>(piece.data());
    z.avail_out = kPieceBytes;
    status = inflate(&z, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      fail("{}: damaged: the compressed data is not what deflate writes ({})", name, z.msg ? z.msg : "unknown");
    size_t n = kPieceBytes - z.avail_out;
    total += n;
    if (total > limit) fail("{}: damaged: the compressed data holds more than {} bytes", name, limit);
    if (n > 0 && !sink({piece.data(), n})) return total;
  }
  if (z.avail_in > 0 || !bytes.empty()) fail("{}: damaged: bytes follow the end of the compressed data", name);
  return total;
}

void check_inflated_size(Bytes bytes, uint64_t claimed, const std::string& name) {
  constexpr uint64_t kBestRatio = 1032;
  if (claimed / kBestRatio > bytes.size())
    fail("{}: damaged: {} bytes cannot hold {} compressed ones", name, bytes.size(), claimed);
}

uint32_t crc32_of(uint32_t so_far, Bytes bytes) {
  return static_cast<uint32_t>(::crc32_z(so_far, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace ws
