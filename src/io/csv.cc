// Tables of numbers as values separated by commas or tabs. The file is read twice, first to check and count it, then into a tensor of the right
// size: a table with a fault costs no memory.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "io/file.h"
#include "support/error.h"
#include "support/printable.h"
#include "tensor/tensor_impl.h"
#include "wholestep/data.h"

namespace ws {
namespace {

constexpr size_t kMaxColumns = 1'000'000;

/// Of a number other than 0, by its digits.
bool is_below_one(std::string_view number) {
  const size_t e = std::min(number.find_first_of("eE"), number.size());
  std::string_view power = number.substr(std::min(e + 1, number.size()));
  if (power.starts_with('+')) power.remove_prefix(1);
  int64_t exponent = 0;
  if (std::from_chars(power.data(), power.data() + power.size(), exponent).ec == std::errc::result_out_of_range)
    return power.starts_with('-');
  const std::string_view digits = number.substr(0, e);
  const auto point = static_cast<int64_t>(std::min(digits.find('.'), e)),
             first = static_cast<int64_t>(std::min(digits.find_first_of("123456789"), e));
  return exponent < (first < point ? first + 1 - point : first - point);
}

std::optional<float> number_in(std::string_view field) {
  while (!field.empty() && (field.front() == ' ' || field.front() == '\t')) field.remove_prefix(1);
  while (!field.empty() && (field.back() == ' ' || field.back() == '\t')) field.remove_suffix(1);
  if (field.starts_with('+')) field.remove_prefix(1);
  float value = 0;
  auto [end, problem] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (problem == std::errc::result_out_of_range) {  // from_chars tells too large and too small by no value
    if (!is_below_one({field.data(), end})) return std::nullopt;
    double wide = 0;  // may be a float below the normal ones; 0 where it is too small for a double as well
    std::from_chars(field.data(), end, wide);
    value = static_cast<float>(wide);
  } else if (problem != std::errc()) {
    return std::nullopt;
  }
  if (field.empty() || end != field.data() + field.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

/// Goes through a text row by row.
class RowReader {
 public:
  RowReader(std::string_view text, const std::string& path)
      : text_(text), path_(path), separator_(has_extension(path, ".tsv") ? '\t' : ','), ends_{separator_, '\r', '\n'} {
    if (text_.starts_with("\xEF\xBB\xBF")) text_.remove_prefix(3);  // a byte order mark
  }

  /// The fields of the next row that is not empty, without the quotes around them; false at the end.
  bool next(std::vector<std::string_view>& fields) {
    fields.clear();
    while (!text_.empty() && (text_.front() == '\n' || text_.starts_with("\r\n"))) end_line();
    if (text_.empty()) return false;
    for (bool more = true; more;) {
      fields.push_back(field());
      if (fields.size() > kMaxColumns) fail("{}: line {} has more than {} fields", path_, line_, kMaxColumns);
      more = text_.starts_with(separator_);
      if (more) text_.remove_prefix(1);
    }
    row_line_ = line_;
    end_line();
    return true;
  }
  int64_t line() const { return row_line_; }

 private:
  void end_line() {
    if (text_.starts_with('\r')) text_.remove_prefix(1);
    if (text_.starts_with('\n')) text_.remove_prefix(1);
    ++line_;
  }
  std::string_view field() {
    if (!text_.starts_with('"')) {
      size_t end = std::min(text_.find_first_of(std::string_view(ends_, sizeof ends_)), text_.size());
      std::string_view result = text_.substr(0, end);
      text_.remove_prefix(end);
      if (result.find('"') != std::string_view::npos) fail("{}: line {}: a quotation mark within a field", path_, line_);
      if (text_.starts_with('\r') && !text_.starts_with("\r\n"))
        fail("{}: line {}: a carriage return within a line", path_, line_);
      return result;
    }
    size_t end = text_.find('"', 1);
    while (end != std::string_view::npos && text_.substr(end + 1).starts_with('"')) end = text_.find('"', end + 2);  // doubled
    if (end == std::string_view::npos) fail("{}: line {}: a quotation mark is never closed", path_, line_);
    std::string_view inside = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    if (!text_.empty() && text_.front() != separator_ && text_.front() != '\n' && !text_.starts_with("\r\n"))
      fail("{}: line {}: text after a closing quotation mark", path_, line_);
    if (inside.find_first_of("\r\n") != std::string_view::npos) fail("{}: line {}: a field of several lines", path_, line_);
    return inside;
  }

  std::string_view text_;
  const std::string& path_;
  char separator_, ends_[3];  // of fields
  int64_t line_ = 1, row_line_ = 0;
};

void check_names(std::vector<std::string> names, const std::string& path, int64_t line) {
  std::sort(names.begin(), names.end());
  if (auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    fail("{}: line {} names two columns '{}'; give each a name of its own", path, line, printable(*twice));
}

}  // namespace

Table load_csv(const std::string& path) {
  MappedFile file(path);
  Table table;
  size_t num_columns = 0;
  int64_t rows = 0;
  // Calls sink(value) for every number, in order.
  auto pass = [&](auto&& sink) {
    RowReader reader(file.text(), path);
    std::vector<std::string_view> fields;
    rows = 0;
    bool first = true;
    while (reader.next(fields)) {
      if (first) {
        first = false;
        num_columns = fields.size();
        bool numbers = std::all_of(fields.begin(), fields.end(), [](std::string_view f) { return number_in(f).has_value(); });
        table.columns.clear();
        if (!numbers) table.columns.assign(fields.begin(), fields.end());
        check_names(table.columns, path, reader.line());
        if (!numbers) continue;
      }
      if (fields.size() != num_columns)
        fail("{}: line {} has {} fields, the first has {}", path, reader.line(), fields.size(), num_columns);
      for (size_t c = 0; c < fields.size(); ++c) {
        std::optional<float> value = number_in(fields[c]);
        if (!value)
          fail("{}: line {}, column {}{}: '{}' is not a finite number", path, reader.line(), c + 1,
               table.columns.empty() ? "" : fmt::format(" ({})", printable(table.columns[c])), printable(fields[c]));
        sink(*value);
      }
      ++rows;
    }
  };
  pass([](float) {});
  if (rows == 0) fail("{} holds no rows of numbers", path);
  auto impl = new_dense({DType::f32, {rows, static_cast<int64_t>(num_columns)}});
  auto* out = static_cast<float*>(impl->pointer());
  pass([&](float value) { *out++ = value; });
  table.values = Tensor(std::move(impl));
  return table;
}

}  // namespace ws
