#include "ladder/chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace ws::cli {
namespace {

// Colours by role, in both schemes; the same names are used by the page.
constexpr const char* kStyle = R"(<style>
  .chart { --ink: #1f2328; --quiet: #656d76; --grid: #d8dee4; --main: #0b66c3; --control: #9ec5ee; --mark: #bf3989; --ground: #ffffff;
           font-family: system-ui, sans-serif; font-size: 13px; }
  @media (prefers-color-scheme: dark) {
    .chart { --ink: #e6edf3; --quiet: #9198a1; --grid: #30363d; --main: #58a6ff; --control: #274b73; --mark: #f778ba; --ground: #0d1117; }
  }
  .chart text { fill: var(--ink); } .chart .quiet { fill: var(--quiet); } .chart .title { font-size: 15px; font-weight: 600; }
  .chart .main { fill: var(--main); } .chart .control { fill: var(--control); }
  .chart .mark { stroke: var(--mark); stroke-width: 2.5; } .chart .grid { stroke: var(--grid); stroke-width: 1; }
  .chart .line { fill: none; stroke: var(--main); stroke-width: 2; } .chart .faint { fill: none; stroke: var(--control); stroke-width: 1; }
</style>)";

std::string open_svg(double width, double height, const std::string& title) {
  return fmt::format(
      "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" width=\"{:.0f}\" role=\"img\" "
      "aria-label=\"{}\" style=\"max-width:100%;height:auto\">\n{}\n<rect width=\"100%\" height=\"100%\" "
      "fill=\"var(--ground)\"/>\n"
      "<text class=\"title\" x=\"16\" y=\"26\">{}</text>\n",
      width, height, width, escaped(title), kStyle, escaped(title));
}

bool drawable(double value) { return std::isfinite(value) && value > 0; }

// 1, 2 or 5 times a power of ten, so that about `count` steps cover `span`.
double round_step(double span, int count) {
  double raw = span / count, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0})
    if (raw <= factor * power) return factor * power;
  return 10 * power;
}

std::string number_text(double value) {
  if (std::fabs(value) >= 1e6) return fmt::format("{:g} M", value / 1e6);
  if (std::fabs(value) >= 1e4) return fmt::format("{:g} k", value / 1e3);
  return fmt::format("{:g}", std::round(value * 1e6) / 1e6);
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string bar_chart(const std::string& title, const std::vector<Bar>& bars, const std::string& marker_name) {
  constexpr double kWidth = 860, kLeft = 250, kRight = 150, kTop = 52, kRow = 46, kThick = 22;
  double highest = 0;
  for (const Bar& bar : bars)
    for (double v : {bar.value, bar.marker})
      if (drawable(v)) highest = std::max(highest, v);
  if (highest == 0) highest = 1;
  double height = kTop + kRow * static_cast<double>(bars.size()) + 34, span = kWidth - kLeft - kRight;
  auto at = [&](double value) { return kLeft + span * value / highest; };
  std::string svg = open_svg(kWidth, height, title);
  double step = round_step(highest, 4), bottom = kTop + kRow * static_cast<double>(bars.size());
  for (double tick = 0; tick <= highest * 1.0001; tick += step)
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>"
        "<text class=\"quiet\" x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4}</text>\n",
        at(tick), kTop - 6, bottom, bottom + 18, number_text(tick));
  for (size_t i = 0; i < bars.size(); ++i) {
    const Bar& bar = bars[i];
    double y = kTop + kRow * static_cast<double>(i);
    svg += fmt::format(
        "<text x=\"16\" y=\"{:.1f}\">{}</text><text class=\"quiet\" x=\"16\" y=\"{:.1f}\" font-size=\"11\">{}</text>\n", y + 14,
        escaped(bar.label), y + 29, escaped(bar.note));
    double end = kLeft;
    if (drawable(bar.value)) {
      end = at(bar.value);
      svg += fmt::format("<rect class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" rx=\"2\"/>\n",
                         bar.emphasised ? "main" : "control", kLeft, y + 2, std::max(end - kLeft, 1.0), kThick);
    }
    if (drawable(bar.marker)) {
      svg += fmt::format("<line class=\"mark\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>\n", at(bar.marker),
                         y - 1, y + kThick + 5);
      end = std::max(end, at(bar.marker));
    }
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", end + 8, y + 18, escaped(bar.text));
  }
  if (!marker_name.empty())
    svg += fmt::format(
        "<line class=\"mark\" x1=\"{0:.0f}\" y1=\"14\" x2=\"{0:.0f}\" y2=\"32\"/>"
        "<text class=\"quiet\" x=\"{1:.0f}\" y=\"27\" text-anchor=\"end\">{2}</text>\n",
        kWidth - 16, kWidth - 26, escaped(marker_name));
  return svg + "</svg>\n";
}

std::string line_chart(const std::string& title, const std::string& x_name, const std::vector<Curve>& curves) {
  constexpr double kWidth = 860, kHeight = 320, kLeft = 64, kRight = 24, kTop = 48, kBottom = 46;
  double low = INFINITY, high = -INFINITY;
  size_t length = 2;
  for (const Curve& curve : curves) {
    length = std::max(length, curve.values.size());
    for (double v : curve.values)
      if (std::isfinite(v)) low = std::min(low, v), high = std::max(high, v);
  }
  if (!(low < high)) low = 0, high = 1;
  double step = round_step(high - low, 5);
  low = std::floor(low / step) * step, high = std::ceil(high / step) * step;
  auto x_at = [&](double i) { return kLeft + (kWidth - kLeft - kRight) * i / static_cast<double>(length - 1); };
  auto y_at = [&](double v) { return kTop + (kHeight - kTop - kBottom) * (high - v) / (high - low); };
  std::string svg = open_svg(kWidth, kHeight, title);
  for (double tick = low; tick <= high + step / 2; tick += step)
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{:.0f}\" y1=\"{:.1f}\" x2=\"{:.0f}\" y2=\"{:.1f}\"/>"
        "<text class=\"quiet\" x=\"{:.0f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, y_at(tick), kWidth - kRight, y_at(tick), kLeft - 8, y_at(tick) + 4, number_text(tick));
  double x_step = std::max(1.0, round_step(static_cast<double>(length), 6));
  for (double tick = 0; tick < static_cast<double>(length); tick += x_step)
    svg += fmt::format("<text class=\"quiet\" x=\"{:.1f}\" y=\"{:.0f}\" text-anchor=\"middle\">{:.0f}</text>\n", x_at(tick),
                       kHeight - kBottom + 18, tick);
  svg += fmt::format("<text class=\"quiet\" x=\"{:.0f}\" y=\"{:.0f}\" text-anchor=\"middle\">{}</text>\n", kWidth / 2,
                     kHeight - 8, escaped(x_name));
  double legend = kWidth - kRight;
  for (size_t c = 0; c < curves.size(); ++c) {
    const char* kind = c + 1 < curves.size() ? "faint" : "line";
    std::string points;
    auto flush = [&] {
      if (!points.empty()) svg += fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n", kind, points);
      points.clear();
    };
    for (size_t i = 0; i < curves[c].values.size(); ++i) {
      if (std::isfinite(curves[c].values[i]))
        points += fmt::format("{:.1f},{:.1f} ", x_at(static_cast<double>(i)), y_at(curves[c].values[i]));
      else
        flush();
    }
    flush();
    double width = 7.0 * static_cast<double>(curves[c].name.size());
    svg += fmt::format(
        "<text class=\"quiet\" x=\"{:.0f}\" y=\"27\" text-anchor=\"end\">{}</text><line class=\"{}\" x1=\"{:.0f}\" y1=\"23\" "
        "x2=\"{:.0f}\" y2=\"23\"/>\n",
        legend, escaped(curves[c].name), kind, legend - width - 30, legend - width - 8);
    legend -= width + 48;
  }
  return svg + "</svg>\n";
}

}  // namespace ws::cli
