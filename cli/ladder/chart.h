// Charts as SVG that follow the reader's light or dark scheme: alone as a file, or inside the page.
#pragma once
#include <string>
#include <vector>

namespace ws::cli {

struct Bar {
  std::string label, note;  // "R2 bf16"; under it
  double value = 0;         // 0 or NaN: no bar, only the note
  std::string text;         // at the end of the bar
  double marker = 0;        // a line across: what was predicted; 0: none
  bool emphasised = true;   // controls are drawn fainter
};
/// Horizontal bars from zero on one scale. `marker_name` explains the lines.
std::string bar_chart(const std::string& title, const std::vector<Bar>& bars, const std::string& marker_name);

struct Curve {
  std::string name;
  std::vector<double> values;  // by step; NaN leaves a gap
};
/// One panel with labelled axes; the first curve is faint where there are two (raw and smoothed).
std::string line_chart(const std::string& title, const std::string& x_name, const std::vector<Curve>& curves);

/// & < > " as entities.
std::string escaped(const std::string& text);

}  // namespace ws::cli
