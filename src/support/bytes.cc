#include "support/bytes.h"

#include <charconv>
#include <cmath>

#include "support/error.h"

namespace ws {

int64_t parse_bytes(std::string_view text, std::string_view source) {
  const auto refuse = [&] { fail("{} must be an amount of memory such as 512MiB or 2GiB, not '{}'", source, text); };
  double amount = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), amount);
  if (problem != std::errc() || !std::isfinite(amount)) refuse();
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  double scale = 1;
  if (!unit.empty() && unit != "B") {
    const size_t power = std::string_view("KMGT").find(unit[0] == 'k' ? 'K' : unit[0]);
    const std::string_view rest = unit.substr(1);
    if (power == std::string_view::npos || !(rest.empty() || rest == "iB" || rest == "B")) refuse();
    scale = std::ldexp(1.0, 10 * (static_cast<int>(power) + 1));
  }
  const double bytes = std::floor(amount * scale);
  if (!(bytes >= 1) || bytes > 0x1p62) refuse();
  return static_cast<int64_t>(bytes);
}

std::string bytes_text(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  while (std::fabs(bytes) >= 1000 && unit < 4) bytes /= 1024, ++unit;
  if (unit == 0) return fmt::format("{:.0f} B", bytes);
  return fmt::format("{:.{}f} {}", bytes, std::fabs(bytes) < 10 ? 2 : std::fabs(bytes) < 100 ? 1 : 0, kUnits[unit]);
}

}  // namespace ws
