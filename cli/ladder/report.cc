#include "ladder/report.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "command.h"
#include "ladder/chart.h"
#include "ladder/report_values.h"
#include "support/progress.h"
#include "support/text_table.h"

namespace ws::cli {
namespace {

std::string wall(const Json& rung) {
  if (rung.contains("refused")) return "plan refused";
  return rung.contains("classification") ? text(rung["classification"], "bound") : std::string("-");
}

std::string ratio(const Json& rung) {
  if (!std::isfinite(value(rung, "ratio"))) return "-";
  std::string out = fmt::format("{:.2f}x", value(rung, "ratio"));
  if (rung.value("too_noisy", false)) out += " (noisy)";
  return out;
}

bool is_control(const Json& rung) { return text(rung, "rung").find(' ') != std::string::npos; }

}  // namespace

std::vector<Json> in_order(const Json& report) {
  std::vector<Json> list(report["rungs"].begin(), report["rungs"].end());
  for (const Json& control : report.value("controls", Json::array())) {
    // Before the rung it belongs to, unless it asks what else that rung could do ("R4 budget").
    std::string name = text(control, "rung"), rung = name.substr(0, name.find(' '));
    auto at = std::find_if(list.begin(), list.end(), [&](const Json& r) { return text(r, "rung") == rung; });
    bool after = control.value("after", false);
    list.insert(at == list.end() || !after ? at : at + 1, control);
  }
  return list;
}

std::vector<std::string> noise_notes(const Json& report) {
  std::vector<std::string> notes;
  bool one_round = false;
  for (const Json& rung : in_order(report)) {
    one_round |= value(rung, "rounds") == 1;
    if (rung.value("too_noisy", false))
      notes.push_back(fmt::format("{}: the machine is too noisy to tell it from R1: ratios {:.2f} to {:.2f}", text(rung, "rung"),
                                  value(rung, "ratio_low"), value(rung, "ratio_high")));
  }
  if (one_round) notes.emplace_back("ratios are of one round, which cannot tell how noisy the machine is: see --rounds");
  return notes;
}

std::string report_table(const Json& report) {
  std::string item = report.value("item", std::string("tokens"));
  TextTable table({"rung", item + "/s", "predicted", "off by", "to R1", "GFLOP/s", "of roof", "temporaries", "wall"});
  for (const Json& rung : in_order(report))
    table.add({text(rung, "rung") + "  " + text(rung, "change"), number(rung, "tokens_per_s", 1, "{:.0f}"),
               number(rung, "predicted", 1, "{:.0f}"), number(rung, "prediction_error", 100, "{:+.0f} %"), ratio(rung),
               number(rung, "gflops_achieved", 1, "{:.0f}"), number(rung, "share_of_roof", 100, "{:.0f} %"),
               number(rung, "planned_temp_bytes", 1.0 / (1 << 20), "{:.1f} MiB"), wall(rung)});
  std::string out = "\n" + table.str();
  out += fmt::format(
      "roofs: {:.0f} GFLOP/s fp32, {} bf16, {:.1f} GB/s\n", value(report, "fp32_flops_per_s") / 1e9,
      value(report, "bf16_flops_per_s") > 0 ? fmt::format("{:.0f}", value(report, "bf16_flops_per_s") / 1e9) : std::string("no"),
      value(report, "memory_bytes_per_s") / 1e9);
  for (const Json& rung : in_order(report)) {
    for (const Json& receipt : rung.value("receipts", Json::array()))
      out += fmt::format("{}: {}\n", text(rung, "rung"), receipt.get<std::string>());
    if (rung.contains("refused")) out += fmt::format("{}: {}\n", text(rung, "rung"), text(rung, "refused"));
  }
  for (const std::string& note : noise_notes(report)) out += note + "\n";
  if (report.contains("cells")) {
    out += "\n";
    TextTable cells({"dtype", "batch", item + "/s", "temporaries", "wall"});
    for (const Json& cell : report["cells"])
      cells.add({text(cell, "dtype"), cell["batch"].dump(), number(cell, "tokens_per_s", 1, "{:.0f}"),
                 number(cell, "planned_temp_bytes", 1.0 / (1 << 20), "{:.1f} MiB"), text(cell, "wall")});
    out += cells.str();
  }
  if (report.contains("data_parallel") && !report["data_parallel"].empty()) {
    out += "\n";
    TextTable ranks(
        {"ranks", "of", "scaling", item + "/s", "overlapped", "predicted floor", "to one rank", "t_comm", "t_compute"});
    for (const Json& row : report["data_parallel"])
      ranks.add({row["ranks"].dump(), text(row, "of"), text(row, "scaling"), number(row, "plain_tokens_per_s", 1, "{:.0f}"),
                 number(row, "overlapped_tokens_per_s", 1, "{:.0f}"), number(row, "predicted", 1, "{:.0f}"),
                 number(row, "ratio", 1, "{:.2f}x"), number(row, "predicted_comm_ms", 1, "{:.2f} ms"),
                 number(row, "predicted_compute_ms", 1, "{:.2f} ms")});
    out += ranks.str();
  }
  if (report.contains("ceiling") && !report["ceiling"].empty()) {
    out += "\n";
    for (const Json& line : report["ceiling"]) out += fmt::format("R6 {}: {}\n", text(line, "what"), text(line, "result"));
  }
  if (report.contains("traps")) {
    out += "\n";
    for (const Json& trap : report["traps"]) {
      double cost = value(trap, "cost");
      out += fmt::format("trap: {}{}: {}\n", text(trap, "trap"),
                         std::isfinite(cost) ? fmt::format(" ({:+.0f} %)", 100 * cost) : std::string(), text(trap, "how"));
    }
  }
  if (report.contains("check")) {
    const Json& check = report["check"];
    const bool is_timed_longer = value(check, "steps") > value(check, "steps_asked");
    out += fmt::format("\n{} steps of {}{}: mean loss {} (first {}) -> {} (last {}){}\n", check["steps"].dump(),
                       text(check, "configuration"),
                       is_timed_longer ? fmt::format(" (timing took more than --steps {})", check["steps_asked"].dump()) : "",
                       number(check, "mean_loss_first_20", 1, "{:.4f}"), check.value("averaged_steps", 20),
                       number(check, "mean_loss_last_20", 1, "{:.4f}"), check.value("averaged_steps", 20),
                       check.value("falls", true) ? "" : ": IT DOES NOT FALL");
  }
  return out;
}

std::string report_chart(const Json& report) {
  std::vector<Bar> bars;
  for (const Json& rung : in_order(report)) {
    Bar bar;
    bar.label = text(rung, "rung");
    bar.note = text(rung, "change");
    if (bar.note.size() > 40) bar.note = bar.note.substr(0, 38) + "..";
    bar.value = value(rung, "tokens_per_s");
    bar.marker = value(rung, "predicted");
    bar.text = std::isfinite(bar.value) ? fmt::format("{}/s, {}", human(bar.value), ratio(rung)) : wall(rung);
    bar.emphasised = !is_control(rung);
    bars.push_back(bar);
  }
  return bar_chart(fmt::format("{} a second, end to end; ratio to R1", report.value("item", std::string("tokens"))), bars,
                   "predicted before it ran");
}

std::string report_loss_chart(const Json& report) {
  if (!report.contains("losses") || report["losses"].size() < 2) return "";
  auto values = [&](const char* key) {
    std::vector<double> list;
    for (const Json& v : report[key]) list.push_back(v.is_number() ? v.get<double>() : NAN);
    return list;
  };
  return line_chart("Loss of the final check", "step",
                    {{"each step", values("losses")}, {"mean of 20", values("losses_smoothed")}});
}

std::string compare_reports(const Json& a, const Json& b, const std::string& name_a, const std::string& name_b) {
  TextTable table({"rung", "A " + a.value("item", std::string("tokens")) + "/s", "B", "B / A", "A to R1", "B to R1",
                   "A temporaries", "B temporaries", "A wall", "B wall"});
  std::vector<Json> list_a = in_order(a), list_b = in_order(b);
  auto find = [](const std::vector<Json>& list, const std::string& name) {
    auto at = std::find_if(list.begin(), list.end(), [&](const Json& r) { return text(r, "rung") == name; });
    return at == list.end() ? Json::object() : *at;
  };
  std::vector<std::string> names;
  for (const auto* list : {&list_a, &list_b})
    for (const Json& rung : *list)
      if (std::find(names.begin(), names.end(), text(rung, "rung")) == names.end()) names.push_back(text(rung, "rung"));
  for (const std::string& name : names) {
    Json x = find(list_a, name), y = find(list_b, name);
    double quotient = value(y, "tokens_per_s") / value(x, "tokens_per_s");
    table.add({name, number(x, "tokens_per_s", 1, "{:.0f}"), number(y, "tokens_per_s", 1, "{:.0f}"),
               std::isfinite(quotient) ? fmt::format("{:.2f}x", quotient) : "-", ratio(x), ratio(y),
               number(x, "planned_temp_bytes", 1.0 / (1 << 20), "{:.1f} MiB"),
               number(y, "planned_temp_bytes", 1.0 / (1 << 20), "{:.1f} MiB"), x.empty() ? "-" : wall(x),
               y.empty() ? "-" : wall(y)});
  }
  std::string out =
      fmt::format("A {}: {}, {} threads, {}\nB {}: {}, {} threads, {}\n", name_a, text(a, "cpu"), a.value("threads", 0),
                  text(a, "backend"), name_b, text(b, "cpu"), b.value("threads", 0), text(b, "backend"));
  for (const char* key : {"preset", "model", "parameters", "batch", "seq"})
    if (a.value(key, Json()) != b.value(key, Json()))
      out += fmt::format("{} differs: {} and {}\n", key, a.value(key, Json()).dump(), b.value(key, Json()).dump());
  return out + table.str() + "B / A compares two runs: the ratios to R1 within each are the safer figures.\n";
}

}  // namespace ws::cli
