// AMX's tiles in plain C++, rounding for rounding, so that all but the instructions themselves is tested on any machine. Source:
// Intel's Software Developer's Manual, operation of TDPBF16PS: fp32 to nearest even, denormals in and out are zero.
#include <bit>
#include <cmath>
#include <cstring>

#include "backend/cpu/gemm/amx_kernel.h"
#include "backend/cpu/gemm/portable_registers.h"

namespace ws::cpu {
namespace {

float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

class TileModel {
 public:
  static void configure(int rows, int columns) { rows_ = rows, columns_ = columns; }
  /// What a program must not rely on after it is made plain.
  static void release() {
    for (auto& tile : tiles_)
      for (auto& row : tile)
        for (uint32_t& word : row) word = 0x7FC0DEAD;
    rows_ = columns_ = 0;
  }
  template <int T>
  static void zero() {
    std::memset(tiles_[T], 0, sizeof tiles_[T]);
  }
  template <int T>
  static void load(const float* from, int64_t stride_bytes) {
    zero<T>();
    for (int i = 0; i < rows_of(T); ++i)
      std::memcpy(tiles_[T][i], reinterpret_cast<const char*>(from) + i * stride_bytes, 4 * static_cast<size_t>(words_of(T)));
  }
  template <int T>
  static void store(float* to, int64_t stride_bytes) {
    for (int i = 0; i < rows_of(T); ++i)
      std::memcpy(reinterpret_cast<char*>(to) + i * stride_bytes, tiles_[T][i], 4 * static_cast<size_t>(words_of(T)));
  }
  template <int C, int A, int B>
  static void dot() {
    for (int m = 0; m < rows_of(C); ++m)
      for (int n = 0; n < words_of(C); ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < kTileWords; ++k) {
          const uint32_t a = tiles_[A][m][k], b = tiles_[B][k][n];
          even = add_product(even, a << 16, b << 16);
          odd = add_product(odd, a & 0xFFFF0000u, b & 0xFFFF0000u);
        }
        const float sum = flushed(std::bit_cast<float>(tiles_[C][m][n])) + flushed(even + odd);
        tiles_[C][m][n] = std::bit_cast<uint32_t>(flushed(sum));
      }
  }

 private:
  static float add_product(float sum, uint32_t a, uint32_t b) {
    return flushed(std::fma(flushed(std::bit_cast<float>(a)), flushed(std::bit_cast<float>(b)), sum));
  }
  static int half(int size, int which) { return std::clamp(size - which * kTileRows, 0, kTileRows); }
  static int rows_of(int tile) { return tile < 4 ? half(rows_, tile / 2) : tile < 6 ? half(rows_, tile - 4) : kTileWords; }
  static int words_of(int tile) { return tile < 4 ? half(columns_, tile % 2) : tile < 6 ? kTileWords : half(columns_, tile - 6); }
  static inline thread_local uint32_t tiles_[8][kTileRows][kTileWords];
  static inline thread_local int rows_ = 0, columns_ = 0;
};

struct PortableWords : PortableRegisters<kTileWords> {
  static float word(const Bf16* src, int64_t depth_stride, int64_t steps) {
    const uint32_t odd = steps > 1 ? src[depth_stride].bits : 0;
    return std::bit_cast<float>(odd << 16 | src->bits);
  }
  static Reg load_depth(const Bf16* src) { return load_depth_part(src, 2 * kLanes); }
  static Reg load_depth_part(const Bf16* src, int elements) {
    Reg r{};
    for (int i = 0; 2 * i < elements; ++i) r.lane[i] = word(src + 2 * i, 1, elements - 2 * i);
    return r;
  }
  static Reg load_lines(const Bf16* src, int64_t depth_stride, int64_t steps) {
    return load_lines_part(src, depth_stride, steps, kLanes);
  }
  static Reg load_lines_part(const Bf16* src, int64_t depth_stride, int64_t steps, int lanes) {
    Reg r{};
    for (int i = 0; i < lanes; ++i) r.lane[i] = word(src + i, depth_stride, steps);
    return r;
  }
};

}  // namespace

const GemmCode& gemm_code_amx_model() {
  static constexpr GemmCode code = blocked_code<AmxWords<PortableWords, TileModel>>();
  return code;
}

}  // namespace ws::cpu
