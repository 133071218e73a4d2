// Keys and host-side random numbers: Philox4x32-10, so that a number depends on its key and position only.
// Used for initial values, shuffling and sampling; random bits inside a step are an op of their own.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace ws {

/// A 64-bit key of a random stream. Keys derived by different names or numbers give independent streams.
class Key {
 public:
  explicit Key(uint64_t seed) : bits_(seed) {}
  Key fold(std::string_view name) const;
  Key fold(uint64_t number) const;
  uint64_t bits() const { return bits_; }
  bool operator==(const Key&) const = default;

 private:
  uint64_t bits_;
};

/// One block of Philox4x32-10 (Salmon et al. 2011).
std::array<uint32_t, 4> philox(Key key, std::array<uint32_t, 4> counter);

/// Inverse of the standard normal distribution function for 0 < p < 1 (Wichura 1988, AS 241), about 1e-16 relative.
/// Written with basic operations only, so that its bits are the same on every machine.
double inverse_normal_cdf(double p);

/// Numbers of one key in order; element i depends on (key, i) only.
class RandomStream {
 public:
  explicit RandomStream(Key key) : key_(key) {}
  uint64_t next();
  /// Uniform in (0, 1), both ends excluded, 52 bits.
  double uniform();
  double normal() { return inverse_normal_cdf(uniform()); }
  /// Uniform in [0, bound), without bias.
  uint64_t below(uint64_t bound);

 private:
  Key key_;
  uint64_t block_ = 0;
  std::array<uint32_t, 4> words_{};
  bool half_ = false;
};

/// 0 .. count-1 in a random order (Fisher and Yates).
std::vector<int64_t> random_permutation(Key key, int64_t count);

}  // namespace ws
