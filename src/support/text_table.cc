#include "support/text_table.h"

#include <algorithm>

namespace ws {
namespace {

// Columns on the terminal: code points, which is right for the few signs used here.
size_t columns(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string TextTable::str() const {
  std::vector<size_t> widths(rows_[0].size(), 0);
  for (const auto& row : rows_)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], columns(row[c]));
  std::string out;
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::string line;
    for (size_t c = 0; c < rows_[r].size(); ++c) {
      std::string gap(widths[c] - columns(rows_[r][c]), ' ');
      line += (c ? "  " : "") + (c ? gap + rows_[r][c] : rows_[r][c] + gap);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
    if (r == 0) out += std::string(columns(line), '-') + '\n';
  }
  return out;
}

}  // namespace ws
