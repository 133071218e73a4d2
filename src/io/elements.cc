#include "io/elements.h"

#include <bit>
#include <cstring>
#include <limits>

#include "io/half.h"
#include "support/error.h"
#include "tensor/tensor_impl.h"

namespace ws {
namespace {

template <class T>
T swapped(T value) {
  if constexpr (sizeof(T) == 2) return __builtin_bswap16(value);
  if constexpr (sizeof(T) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(T) == 8) return __builtin_bswap64(value);
  return value;
}

// Each element as an unsigned number of its size, turned into To by f.
template <class Word, class To, class F>
void convert_each(Bytes bytes, bool swap, void* to, F&& f) {
  auto* out = static_cast<To*>(to);
  for (size_t i = 0, n = bytes.size() / sizeof(Word); i < n; ++i) {
    Word word;
    std::memcpy(&word, bytes.data() + i * sizeof(Word), sizeof(Word));
    out[i] = f(swap ? swapped(word) : word);
  }
}

template <class Word, class Signed>
void convert_whole(Bytes bytes, FileElement e, bool swap, void* to, const std::string& where) {
  auto refuse = [&](auto value) { fail("{} holds {}, which does not fit 32 bits", where, value); };
  if (e.kind == ElementKind::signed_whole)
    convert_each<Word, int32_t>(bytes, swap, to, [&](Word w) {
      auto value = static_cast<int64_t>(static_cast<Signed>(w));
      if (value != static_cast<int32_t>(value)) refuse(value);
      return static_cast<int32_t>(value);
    });
  else if (sizeof(Word) == 4)
    convert_each<Word, uint32_t>(bytes, swap, to, [](Word w) { return static_cast<uint32_t>(w); });
  else
    convert_each<Word, int32_t>(bytes, swap, to, [&](Word w) {
      if (static_cast<uint64_t>(w) > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) refuse(static_cast<uint64_t>(w));
      return static_cast<int32_t>(w);
    });
}

}  // namespace

DType dtype_of(FileElement e) {
  switch (e.kind) {
    case ElementKind::boolean: return DType::boolean;
    case ElementKind::floating: return e.bytes == 8 ? DType::f64 : DType::f32;
    case ElementKind::unsigned_whole: return e.bytes == 4 ? DType::u32 : DType::i32;
    case ElementKind::signed_whole: return DType::i32;
  }
  return DType::f32;
}

Tensor tensor_of_elements(Bytes bytes, FileElement e, const Shape& shape, const std::string& where) {
  WS_ASSERT(bytes.size() == static_cast<size_t>(shape.num_elements()) * static_cast<size_t>(e.bytes), "{}", where);
  auto impl = new_dense({dtype_of(e), shape});
  void* to = impl->pointer();
  bool swap = e.big_endian == (std::endian::native == std::endian::little);
  if (e.kind == ElementKind::boolean) {
    convert_each<uint8_t, uint8_t>(bytes, false, to, [&](uint8_t b) {
      if (b > 1) fail("{} holds the byte {} as a boolean", where, b);
      return b;
    });
  } else if (e.kind == ElementKind::floating) {
    if (e.bytes == 2) convert_each<uint16_t, float>(bytes, swap, to, from_half);
    if (e.bytes == 4) convert_each<uint32_t, uint32_t>(bytes, swap, to, [](uint32_t w) { return w; });
    if (e.bytes == 8) convert_each<uint64_t, uint64_t>(bytes, swap, to, [](uint64_t w) { return w; });
  } else {
    if (e.bytes == 1) convert_whole<uint8_t, int8_t>(bytes, e, swap, to, where);
    if (e.bytes == 2) convert_whole<uint16_t, int16_t>(bytes, e, swap, to, where);
    if (e.bytes == 4) convert_whole<uint32_t, int32_t>(bytes, e, swap, to, where);
    if (e.bytes == 8) convert_whole<uint64_t, int64_t>(bytes, e, swap, to, where);
  }
  return Tensor(std::move(impl));
}

}  // namespace ws
