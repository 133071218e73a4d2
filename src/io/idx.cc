// IDX, the format of MNIST: two zero bytes, the kind of element, the number of dims, the dims (32 bits, big-endian), the elements.
#include <algorithm>
#include <array>

#include "io/elements.h"
#include "io/inflate.h"
#include "support/error.h"
#include "tensor/tensor_impl.h"
#include "wholestep/data.h"

namespace ws {
namespace {

constexpr size_t kMaxHeaderBytes = 4 + 4 * kMaxRank;

struct IdxHeader {
  FileElement element = {};
  std::vector<int64_t> dims;
  size_t bytes = 0;
  int64_t element_bytes = 0;  // of all elements
};

FileElement element_of(int code, const std::string& path) {
  switch (code) {
    case 0x08: return {ElementKind::unsigned_whole, 1, true};
    case 0x09: return {ElementKind::signed_whole, 1, true};
    case 0x0B: return {ElementKind::signed_whole, 2, true};
    case 0x0C: return {ElementKind::signed_whole, 4, true};
    case 0x0D: return {ElementKind::floating, 4, true};
    case 0x0E: return {ElementKind::floating, 8, true};
    default: fail("{}: not an IDX file: 0x{:02x} names no kind of element", path, code);
  }
}

IdxHeader read_header(Bytes begin, const std::string& path) {
  auto byte = [&](size_t i) { return std::to_integer<int64_t>(begin[i]); };
  if (begin.size() < 4 || byte(0) != 0 || byte(1) != 0) fail("{}: not an IDX file: it must begin with two zero bytes", path);
  IdxHeader h;
  h.element = element_of(static_cast<int>(byte(2)), path);
  auto rank = static_cast<size_t>(byte(3));
  if (rank < 1 || rank > kMaxRank) fail("{}: {} dims are not read; 1 to {} are", path, rank, kMaxRank);
  h.bytes = 4 + 4 * rank;
  if (begin.size() < h.bytes) fail("{}: cut short within its dims", path);
  h.element_bytes = h.element.bytes;
  for (size_t at = 4; at < h.bytes; at += 4) {
    h.dims.push_back(byte(at) << 24 | byte(at + 1) << 16 | byte(at + 2) << 8 | byte(at + 3));
    if (__builtin_mul_overflow(h.element_bytes, h.dims.back(), &h.element_bytes))
      fail("{}: dims {} are too large", path, fmt::join(h.dims, " x "));
  }
  return h;
}

void check_size(const IdxHeader& h, uint64_t total, const std::string& path) {
  if (static_cast<uint64_t>(h.element_bytes) != total - h.bytes)
    fail("{}: {} elements take {} bytes, the file has {}", path, fmt::join(h.dims, " x "), h.element_bytes,
         static_cast<int64_t>(total) - static_cast<int64_t>(h.bytes));
}

/// Header and elements of a file; `storage` holds them where the file is compressed.
std::pair<IdxHeader, Bytes> read_idx(const MappedFile& file, std::vector<std::byte>& storage) {
  Bytes all = file.bytes();
  const std::string& path = file.path();
  bool zipped = all.size() > 2 && all[0] == std::byte{0x1f} && all[1] == std::byte{0x8b};
  if (!zipped) {
    IdxHeader h = read_header(all, path);
    check_size(h, all.size(), path);
    return {h, all.subspan(h.bytes)};
  }
  inflate_bytes(all, Deflated::gzip, UINT64_MAX, path, [&](Bytes piece) {
    storage.insert(storage.end(), piece.begin(), piece.end());
    return storage.size() < kMaxHeaderBytes;
  });
  IdxHeader h = read_header(storage, path);
  uint64_t total = h.bytes + static_cast<uint64_t>(h.element_bytes);
  check_inflated_size(all, total, path);
  check_size(h, inflate_bytes(all, Deflated::gzip, total, path, [](Bytes) { return true; }), path);
  storage.clear();  // all is right: now memory is taken
  storage.reserve(total);
  inflate_bytes(all, Deflated::gzip, total, path, [&](Bytes piece) {
    storage.insert(storage.end(), piece.begin(), piece.end());
    return true;
  });
  return {h, Bytes(storage).subspan(h.bytes)};
}

}  // namespace

Tensor load_idx(const std::string& path) {
  MappedFile file(path);
  std::vector<std::byte> storage;
  auto [header, elements] = read_idx(file, storage);
  return tensor_of_elements(elements, header.element, Shape(header.dims), path);
}

Tensor load_idx_images(const std::string& path) {
  MappedFile file(path);
  std::vector<std::byte> storage;
  auto [h, elements] = read_idx(file, storage);
  if (h.dims.size() != 3 || h.element.kind != ElementKind::unsigned_whole)
    fail("{}: images must be bytes of 3 dims, here are {}", path, fmt::join(h.dims, " x "));
  auto impl = new_dense({DType::f32, {h.dims[0], h.dims[1], h.dims[2], 1}});
  auto* out = static_cast<float*>(impl->pointer());
  for (size_t i = 0; i < elements.size(); ++i) out[i] = static_cast<float>(std::to_integer<int>(elements[i])) / 255.0f;
  return Tensor(std::move(impl));
}

}  // namespace ws
