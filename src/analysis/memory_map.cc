// The arena as a picture: kernels to the right, offsets upwards, one rectangle a tensor.
#include <algorithm>
#include <functional>

#include "support/bytes.h"
#include "support/error.h"
#include "wholestep/analysis.h"

namespace ws {
namespace {

constexpr double kWidth = 960, kHeight = 420, kLeft = 70, kTop = 14, kBottom = 34;

std::string escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

/// One hue a layer, so that what belongs together looks so.
int hue_of(const std::string& path) {
  uint32_t hash = 2166136261u;
  for (char c : path) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return static_cast<int>(hash % 360);
}

// Colours by scheme; the page around an embedded picture may set its own.
constexpr const char* kStyle =
    "<style>.wm{--ink:#24292f;--line:#d0d7de;--light:68%}"
    "@media(prefers-color-scheme:dark){.wm{--ink:#d6dde4;--line:#444c56;--light:42%}}"
    ".wm text{font:12px system-ui,sans-serif;fill:var(--ink)}.wm line{stroke:var(--line)}"
    ".wm rect.t{stroke:var(--ink);stroke-width:.3}.wm rect.t:hover{stroke-width:2}</style>";

}  // namespace

std::string MemoryAnalysis::map_svg() const {
  const double plot_width = kWidth - kLeft - 10, plot_height = kHeight - kTop - kBottom;
  const double per_call = plot_width / std::max(num_calls, 1),
               per_byte = plot_height / std::max<double>(static_cast<double>(arena_bytes), 1);
  std::string svg = fmt::format(
      "<svg class=\"wm\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"memory of the "
      "step\">{}\n",
      kWidth, kHeight, kStyle);
  for (int quarter = 0; quarter <= 4; ++quarter) {
    const double y = kTop + plot_height * (1 - quarter / 4.0);
    svg += fmt::format(
        "<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/><text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
        kLeft, y, kWidth - 10, y, kLeft - 6, y + 4, bytes_text(static_cast<double>(arena_bytes) * quarter / 4));
  }
  for (const TensorMemory& t : tensors) {
    if (t.offset < 0) continue;
    const double height = static_cast<double>(t.bytes) * per_byte;
    if (height < 0.2) continue;  // not to be seen
    const int last = std::min(t.last_call, num_calls - 1);
    svg += fmt::format(
        "<rect class=\"t\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"hsl({} 55% var(--light))\">"
        "<title>{} {}{}{}: {}, kernels {} to {}</title></rect>\n",
        kLeft + t.first_call * per_call, kTop + plot_height - static_cast<double>(t.offset) * per_byte - height,
        (last - t.first_call + 1) * per_call, height, hue_of(t.path), escaped(t.name), t.dtype, t.path.empty() ? "" : " @",
        escaped(t.path), bytes_text(static_cast<double>(t.bytes)), t.first_call, t.last_call);
  }
  svg += fmt::format("<text x=\"{}\" y=\"{}\">kernel 0</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n</svg>\n",
                     kLeft, kHeight - 10, kWidth - 10, kHeight - 10, num_calls > 0 ? num_calls - 1 : 0);
  return svg;
}

std::string MemoryAnalysis::map_html(const std::string& title) const {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">"
      "<title>{0}</title><style>:root{{color-scheme:light dark}}body{{font:15px "
      "system-ui,sans-serif;max-width:1000px;margin:1.5em auto;"
      "padding:0 1em}}table{{border-collapse:collapse;display:block;overflow-x:auto}}td,th{{padding:.2em .8em;text-align:right;"
      "border-bottom:1px solid #8884}}td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){{text-align:left}}"
      "svg{{width:100%;height:auto}}</style></head>\n<body><h1>{0}</h1>\n<p>Peak {1}: arguments {2}, results {3}, derived copies "
      "of parameters {5}, "
      "temporaries {4}. "
      "A rectangle is a tensor: from the kernel that writes it to the last that reads it; one hue a layer.</p>\n",
      escaped(title), bytes_text(static_cast<double>(peak_bytes)), bytes_text(static_cast<double>(argument_bytes)),
      bytes_text(static_cast<double>(output_bytes - donated_bytes)), bytes_text(static_cast<double>(temporary_bytes)),
      bytes_text(static_cast<double>(derived_bytes)));
  html += map_svg();
  html += "<table><tr><th>tensor</th><th>layer</th><th>role</th><th>bytes</th><th>offset</th><th>from</th><th>to</th></tr>\n";
  std::vector<const TensorMemory*> sorted;
  for (const TensorMemory& t : tensors) sorted.push_back(&t);
  std::stable_sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->bytes > b->bytes; });
  for (const TensorMemory* t : sorted)
    html += fmt::format("<tr><td>{} {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                        escaped(t->name), t->dtype, escaped(t->path), t->role, bytes_text(static_cast<double>(t->bytes)),
                        t->offset < 0 ? "-" : fmt::format("{}", t->offset), t->first_call, t->last_call);
  return html + "</table></body></html>\n";
}

}  // namespace ws
