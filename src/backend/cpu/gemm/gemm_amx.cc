// Products of bf16 by Intel's AMX tiles (Software Developer's Manual, TILECFG and TDPBF16PS).
#if defined(__x86_64__)
#include "backend/cpu/gemm/amx_kernel.h"
#include "backend/cpu/gemm/squares_avx512.h"

namespace ws::cpu {
namespace {

/// The operand of ldtilecfg.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// The intrinsics want literal tile numbers.
#define WS_FOR_TILE(T, DO)     \
  if constexpr ((T) == 0)      \
    DO(0)                      \
  else if constexpr ((T) == 1) \
    DO(1)                      \
  else if constexpr ((T) == 2) \
    DO(2)                      \
  else if constexpr ((T) == 3) \
  DO(3) else if constexpr ((T) == 4) DO(4) else if constexpr ((T) == 5) DO(5) else if constexpr ((T) == 6) DO(6) else DO(7)
#define WS_ZERO(t) _tile_zero(t);
#define WS_LOAD(t) _tile_loadd(t, from, stride_bytes);
#define WS_STORE(t) _tile_stored(t, to, stride_bytes);

class TileInstructions {
 public:
  static void configure(int rows, int columns) {
    const int shape = rows << 8 | columns;
    if (shape == configured_) return;
    configured_ = shape;
    TileConfig config;
    const auto set = [&](int tile, int tile_rows, int words) {
      config.rows[tile] = static_cast<uint8_t>(tile_rows > 0 && words > 0 ? tile_rows : 0);
      config.row_bytes[tile] = static_cast<uint16_t>(tile_rows > 0 && words > 0 ? 4 * words : 0);
    };
    for (int half = 0; half < 2; ++half) {
      const int half_rows = std::min(rows - half * kTileRows, kTileRows),
                half_columns = std::min(columns - half * kTileWords, kTileWords);
      for (int c = 0; c < 2; ++c) set(2 * half + c, half_rows, std::min(columns - c * kTileWords, kTileWords));
      set(4 + half, half_rows, kTileWords);
      set(6 + half, half_columns > 0 ? kTileWords : 0, half_columns);
    }
    _tile_loadconfig(&config);
  }
  static void release() {
    if (configured_ != 0) _tile_release();
    configured_ = 0;
  }
  template <int T>
  static void zero() {
    WS_FOR_TILE(T, WS_ZERO)
  }
  template <int T>
  static void load(const float* from, int64_t stride_bytes) {
    WS_FOR_TILE(T, WS_LOAD)
  }
  template <int T>
  static void store(float* to, int64_t stride_bytes) {
    WS_FOR_TILE(T, WS_STORE)
  }
  template <int C, int A, int B>
  static void dot() {
    if constexpr (C == 0) _tile_dpbf16ps(0, 4, 6);
    if constexpr (C == 1) _tile_dpbf16ps(1, 4, 7);
    if constexpr (C == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (C == 3) _tile_dpbf16ps(3, 5, 7);
    static_assert(A == 4 + C / 2 && B == 6 + C % 2);
  }

 private:
  static inline thread_local int configured_ = 0;  // rows and columns; 0: the tiles are free
};

/// Words in memory's order: the instruction takes even and odd steps apart, whichever half they are in.
struct Avx512Words : Avx512Squares {
  static Reg load_depth(const Bf16* src) { return _mm512_castsi512_ps(_mm512_loadu_si512(src)); }
  static Reg load_depth_part(const Bf16* src, int elements) {
    return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << elements) - 1), src));
  }
  static Reg pair(__m256i even, __m256i odd) {
    const __m512i upper = _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16);
    return _mm512_castsi512_ps(_mm512_or_si512(upper, _mm512_cvtepu16_epi32(even)));
  }
  static __m256i load_half(const Bf16* src) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src)); }
  static Reg load_lines(const Bf16* src, int64_t depth_stride, int64_t steps) {
    return pair(load_half(src), steps > 1 ? load_half(src + depth_stride) : _mm256_setzero_si256());
  }
  static Reg load_lines_part(const Bf16* src, int64_t depth_stride, int64_t steps, int lanes) {
    const __m256i even = _mm256_maskz_loadu_epi16(mask(lanes), src);
    return pair(even, steps > 1 ? _mm256_maskz_loadu_epi16(mask(lanes), src + depth_stride) : _mm256_setzero_si256());
  }
  static float word(const Bf16* src, int64_t depth_stride, int64_t steps) {
    const uint32_t odd = steps > 1 ? src[depth_stride].bits : 0;
    return std::bit_cast<float>(odd << 16 | src->bits);
  }
};

}  // namespace

const GemmCode& gemm_code_amx() {
  static constexpr GemmCode code = blocked_code<AmxWords<Avx512Words, TileInstructions>>();
  return code;
}

}  // namespace ws::cpu
#endif
