// The report as one HTML file that needs nothing else: no script, no font, no picture from outside.
#include <fmt/core.h>

#include <cmath>

#include "ladder/chart.h"
#include "ladder/report.h"
#include "ladder/report_values.h"

namespace ws::cli {
namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>wholestep ladder</title>
<style>
  :root { --ink: #1f2328; --quiet: #656d76; --line: #d8dee4; --ground: #ffffff; --card: #f6f8fa; --main: #0b66c3; }
  @media (prefers-color-scheme: dark) {
    :root { --ink: #e6edf3; --quiet: #9198a1; --line: #30363d; --ground: #0d1117; --card: #151b23; --main: #58a6ff; }
  }
  * { box-sizing: border-box; }
  body { margin: 0 auto; max-width: 1080px; padding: 24px 16px 64px; background: var(--ground); color: var(--ink);
         font: 15px/1.5 system-ui, sans-serif; }
  h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 18px; margin: 40px 0 10px; }
  p { margin: 6px 0; } .quiet { color: var(--quiet); }
  .wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
  th, td { text-align: right; padding: 6px 8px; border-bottom: 1px solid var(--line); white-space: nowrap; }
  th:first-child, td:first-child { text-align: left; white-space: normal; min-width: 190px; }
  th { color: var(--quiet); font-weight: 600; } tr.control td { color: var(--quiet); }
  .cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 290px), 1fr)); gap: 12px; }
  .card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; }
  .card h3 { margin: 0 0 4px; font-size: 15px; } .card ul { margin: 6px 0 0; padding-left: 18px; }
  .shares { display: flex; height: 8px; border-radius: 4px; overflow: hidden; margin: 8px 0 2px; background: var(--line); }
  .shares span { display: block; } .compute { background: #2f81f7; } .memory { background: #bf8700; } .dispatch { background: #bf3989; }
  .key { font-size: 12px; color: var(--quiet); } .key i { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin: 0 4px 0 10px; }
  .wide svg { min-width: 620px; width: 100%; height: auto; }
</style></head><body>
)";

std::string cell(const Json& json, const char* key, double scale, const char* format) {
  return number(json, key, scale, format, "–");
}

std::string row(const std::vector<std::string>& cells, const char* tag, bool control = false) {
  std::string out = control ? "<tr class=\"control\">" : "<tr>";
  for (const std::string& c : cells) out += fmt::format("<{0}>{1}</{0}>", tag, c);
  return out + "</tr>\n";
}

std::string table(const std::vector<std::string>& head, const std::string& rows) {
  return "<div class=\"wide\"><table><thead>" + row(head, "th") + "</thead><tbody>\n" + rows + "</tbody></table></div>\n";
}

std::string rung_rows(const Json& report) {
  std::string rows;
  for (const Json& r : in_order(report)) {
    std::string wall = r.contains("refused")          ? "plan refused"
                       : r.contains("classification") ? text(r["classification"], "bound")
                                                      : "–";
    rows += row({"<b>" + escaped(text(r, "rung")) + "</b> " + escaped(text(r, "change")), cell(r, "tokens_per_s", 1, "{:.0f}"),
                 cell(r, "predicted", 1, "{:.0f}"), cell(r, "prediction_error", 100, "{:+.0f} %"), cell(r, "ratio", 1, "{:.2f}x"),
                 cell(r, "gflops_achieved", 1, "{:.0f}"), cell(r, "share_of_roof", 100, "{:.0f} %"),
                 cell(r, "planned_temp_bytes", 1.0 / (1 << 20), "{:.1f}"),
                 cell(r, "measured_temp_bytes", 1.0 / (1 << 20), "{:.1f}"), escaped(wall)},
                "td", text(r, "rung").find(' ') != std::string::npos);
  }
  return rows;
}

/// What limits a rung: a bar of shares, the evidence, the receipts, the next change.
std::string card(const Json& rung) {
  std::string out =
      fmt::format("<div class=\"card\"><h3>{}: {}</h3>\n", escaped(text(rung, "rung")), escaped(text(rung, "change")));
  if (rung.contains("refused")) out += "<p>" + escaped(text(rung, "refused")) + "</p>";
  if (rung.contains("classification")) {
    const Json& c = rung["classification"];
    out += fmt::format("<p><b>{}</b></p><div class=\"shares\">", escaped(text(c, "bound")));
    for (const char* part : {"compute", "memory", "dispatch"})
      out += fmt::format("<span class=\"{}\" style=\"width:{:.1f}%\"></span>", part,
                         100 * std::max(0.0, c.value(std::string(part) + "_share", 0.0)));
    out += "</div>\n<ul>";
    for (const Json& line : c.value("evidence", Json::array())) out += "<li>" + escaped(line.get<std::string>()) + "</li>";
    out += "</ul>";
  }
  Json receipts = rung.value("receipts", Json::array());
  if (!receipts.empty()) {
    out += "<ul>";
    for (const Json& line : receipts) out += "<li>" + escaped(line.get<std::string>()) + "</li>";
    out += "</ul>";
  }
  if (rung.contains("classification") && !text(rung["classification"], "next_change").empty())
    out += "<p class=\"quiet\">Next: " + escaped(text(rung["classification"], "next_change")) + "</p>";
  return out + "</div>\n";
}

std::string section(const std::string& title, const std::string& content) {
  return content.empty() ? "" : "<h2>" + title + "</h2>\n" + content;
}

/// A chart that scrolls sideways where the window is narrow, rather than shrink until nobody can read it.
std::string chart(const std::string& svg) { return svg.empty() ? "" : "<div class=\"wide\">" + svg + "</div>\n"; }

std::string cells_table(const Json& report) {
  if (!report.contains("cells")) return "";
  std::string rows;
  for (const Json& c : report["cells"])
    rows += row({escaped(text(c, "dtype")), c["batch"].dump(), cell(c, "tokens_per_s", 1, "{:.0f}"),
                 cell(c, "planned_temp_bytes", 1.0 / (1 << 20), "{:.1f} MiB"), escaped(text(c, "wall"))},
                "td");
  return table({"dtype", "batch", report.value("item", std::string("tokens")) + "/s", "temporaries", "wall"}, rows);
}

std::string ranks_table(const Json& report) {
  if (!report.contains("data_parallel") || report["data_parallel"].empty()) return "";
  std::string rows;
  for (const Json& r : report["data_parallel"])
    rows += row({escaped(text(r, "of")) + " on " + r["ranks"].dump() + " ranks, " + escaped(text(r, "scaling")) + " scaling",
                 cell(r, "plain_tokens_per_s", 1, "{:.0f}"), cell(r, "overlapped_tokens_per_s", 1, "{:.0f}"),
                 cell(r, "predicted", 1, "{:.0f}"), cell(r, "ratio", 1, "{:.2f}x"), cell(r, "predicted_comm_ms", 1, "{:.2f} ms"),
                 cell(r, "predicted_compute_ms", 1, "{:.2f} ms")},
                "td");
  return table({"run", report.value("item", std::string("tokens")) + "/s", "overlapped", "predicted floor", "to one rank",
                "t_comm", "t_compute"},
               rows);
}

std::string ceiling_list(const Json& report) {
  std::string out;
  for (const Json& line : report.value("ceiling", Json::array()))
    out += "<li><b>" + escaped(text(line, "what")) + "</b>: " + escaped(text(line, "result")) + "</li>\n";
  return out.empty() ? "" : "<ul>" + out + "</ul>\n";
}

std::string traps_table(const Json& report) {
  std::string rows;
  for (const Json& t : report.value("traps", Json::array()))
    rows += row({escaped(text(t, "trap")), cell(t, "cost", 100, "{:+.0f} %"), escaped(text(t, "how"))}, "td");
  return rows.empty() ? "" : table({"trap", "cost", "measured"}, rows);
}

std::string next_list(const Json& report) {
  std::string out;
  std::vector<std::string> seen;
  for (const Json& rung : report["rungs"]) {
    if (!rung.contains("classification")) continue;
    std::string next = text(rung["classification"], "next_change");
    if (next.empty() || std::find(seen.begin(), seen.end(), next) != seen.end()) continue;
    seen.push_back(next);
    out += "<li>" + escaped(text(rung, "rung")) + ": " + escaped(next) + "</li>\n";
  }
  return out.empty() ? "" : "<ul>" + out + "</ul>\n";
}

}  // namespace

std::string report_page(const Json& report) {
  std::string item = report.value("item", std::string("tokens"));
  std::string page = kHead;
  page += fmt::format(
      "<h1>The ladder of {}</h1>\n<p class=\"quiet\">{} parameters, {}; batch {} x {}. {}, {} threads, {}: {:.0f} GFLOP/s "
      "fp32, {} bf16, {:.1f} GB/s.</p>\n",
      escaped(text(report, "model")), report.value("parameters", int64_t{0}), escaped(text(report, "data")),
      report.value("batch", int64_t{0}), report.value("seq", int64_t{0}), escaped(text(report, "cpu")),
      report.value("threads", 0), escaped(text(report, "backend")), value(report, "fp32_flops_per_s") / 1e9,
      value(report, "bf16_flops_per_s") > 0 ? fmt::format("{:.0f}", value(report, "bf16_flops_per_s") / 1e9) : std::string("no"),
      value(report, "memory_bytes_per_s") / 1e9);
  page +=
      "<p class=\"quiet\">Every rung was priced and predicted before it ran, then timed in turns with R1; ratios are medians "
      "over rounds."
      "</p>\n";
  page += section("Throughput", chart(report_chart(report)));
  page += section("Rungs", table({"rung", item + "/s", "predicted", "off by", "to R1", "GFLOP/s", "of roof", "planned MiB",
                                  "measured MiB", "wall"},
                                 rung_rows(report)));
  for (const std::string& note : noise_notes(report)) page += "<p class=\"quiet\">" + escaped(note) + "</p>\n";
  std::string cards;
  for (const Json& rung : in_order(report))
    if (rung.contains("classification") || rung.contains("refused") || !rung.value("receipts", Json::array()).empty())
      cards += card(rung);
  page += section(
      "What limits each, and the receipts",
      "<p class=\"key\"><i class=\"compute\"></i>compute<i class=\"memory\"></i>memory<i class=\"dispatch\"></i>dispatch</p>\n"
      "<div class=\"cards\">\n" +
          cards + "</div>\n");
  page += section("Dtype and batch", cells_table(report));
  page += section("Data parallel", ranks_table(report));
  page += section("Above the ladder", ceiling_list(report));
  page += section("Loss", chart(report_loss_chart(report)));
  page += section("Memory of the final step", chart(text(report, "memory_map")));
  page += section("Traps", traps_table(report));
  page += section("What to try next", next_list(report));
  return page + "</body></html>\n";
}

}  // namespace ws::cli
