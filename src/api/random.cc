#include "wholestep/random.h"

#include <cmath>
#include <numeric>
#include <utility>

namespace ws {
namespace {

// Streams never meet: numbers, names and draws use different last counter words.
enum CounterTag : uint32_t { kDraw = 0, kFoldNumber = 1, kFoldName = 2 };

uint64_t join(uint32_t low, uint32_t high) { return (static_cast<uint64_t>(high) << 32) | low; }

Key fold_words(Key key, uint64_t value, uint32_t extra, CounterTag tag) {
  auto w = philox(key, {static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32), extra, tag});
  return Key(join(w[0], w[1]));
}

template <size_t N>
double polynomial(const double (&c)[N], double x) {
  double sum = c[N - 1];
  for (size_t i = N - 1; i-- > 0;) sum = sum * x + c[i];
  return sum;
}

// ln x for x > 0, normal: x = m * 2^e with m around 1, ln m = 2 atanh((m-1)/(m+1)).
double natural_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  double s = (m - 1) / (m + 1), s2 = s * s, sum = 0;
  for (int k = 25; k >= 1; k -= 2) sum = sum * s2 + 1.0 / k;
  return exponent * 0.69314718055994530942 + 2 * s * sum;
}

}  // namespace

std::array<uint32_t, 4> philox(Key key, std::array<uint32_t, 4> c) {
  auto k0 = static_cast<uint32_t>(key.bits()), k1 = static_cast<uint32_t>(key.bits() >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t p0 = uint64_t{0xD2511F53} * c[0], p1 = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1), static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1,
         static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return c;
}

Key Key::fold(uint64_t number) const { return fold_words(*this, number, 0, kFoldNumber); }

Key Key::fold(std::string_view name) const {
  uint64_t hash = 0xcbf29ce484222325;  // FNV-1a; philox mixes it with the key
  for (char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fold_words(*this, hash, static_cast<uint32_t>(name.size()), kFoldName);
}

double inverse_normal_cdf(double p) {
  static constexpr double a[] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                 1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                 3.3430575583588128105e+4, 2.5090809287301226727e+3};
  static constexpr double b[] = {1.0,
                                 4.2313330701600911252e+1,
                                 6.8718700749205790830e+2,
                                 5.3941960214247511077e+3,
                                 2.1213794301586595867e+4,
                                 3.9307895800092710610e+4,
                                 2.8729085735721942674e+4,
                                 5.2264952788528545610e+3};
  static constexpr double c[] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                 3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                 2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static constexpr double d[] = {1.0,
                                 2.05319162663775882187e0,
                                 1.67638483018380384940e0,
                                 6.89767334985100004550e-1,
                                 1.48103976427480074590e-1,
                                 1.51986665636164571966e-2,
                                 5.47593808499534494600e-4,
                                 1.05075007164441684324e-9};
  static constexpr double e[] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                 2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                 2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static constexpr double f[] = {1.0,
                                 5.99832206555887937690e-1,
                                 1.36929880922735805310e-1,
                                 1.48753612908506148525e-2,
                                 7.86869131145613259100e-4,
                                 1.84631831751005468180e-5,
                                 1.42151175831644588870e-7,
                                 2.04426310338993978564e-15};
  double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    double r = 0.180625 - q * q;
    return q * polynomial(a, r) / polynomial(b, r);
  }
  double r = std::sqrt(-natural_log(q < 0 ? p : 1 - p));
  double x = r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6) : polynomial(e, r - 5) / polynomial(f, r - 5);
  return q < 0 ? -x : x;
}

uint64_t RandomStream::next() {
  if (half_) {
    half_ = false;
    return join(words_[2], words_[3]);
  }
  words_ = philox(key_, {static_cast<uint32_t>(block_), static_cast<uint32_t>(block_ >> 32), 0, kDraw});
  ++block_;
  half_ = true;
  return join(words_[0], words_[1]);
}

double RandomStream::uniform() { return (static_cast<double>(next() >> 12) + 0.5) * 0x1p-52; }

uint64_t RandomStream::below(uint64_t bound) {
  uint64_t reject_from = UINT64_MAX - UINT64_MAX % bound;  // the largest multiple of bound
  uint64_t x = next();
  while (x >= reject_from) x = next();
  return x % bound;
}

std::vector<int64_t> random_permutation(Key key, int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  RandomStream stream(key);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[stream.below(i)]);
  return order;
}

}  // namespace ws
