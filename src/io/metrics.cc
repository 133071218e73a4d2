#include "io/metrics.h"

#include <vector>

#include "io/file.h"
#include "support/error.h"

namespace ws {
namespace {

/// Whole records of the file with "step" up to `last_step`; a line that was cut is not JSON.
std::vector<std::string> records_until(const std::string& path, int64_t last_step) {
  std::vector<std::string> kept;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json record = Json::parse(line, nullptr, false);
    if (record.is_discarded() || !record.is_object()) continue;
    const auto step = record.find("step");
    if (step != record.end() && step->is_number() && step->get<double>() > static_cast<double>(last_step)) continue;
    kept.push_back(line);
  }
  return kept;
}

}  // namespace

MetricsWriter::MetricsWriter(const std::string& path) : path_(path), file_(path, std::ios::trunc) {
  if (!file_) fail("cannot write {}", path_);
}

MetricsWriter::MetricsWriter(const std::string& path, int64_t last_step) : path_(path) {
  const std::vector<std::string> kept = records_until(path, last_step);
  file_.open(path, std::ios::trunc);
  if (!file_) fail("cannot write {}", path_);
  for (const std::string& line : kept) file_ << line << '\n';
  if (!file_.flush()) fail("cannot write {}", path_);
}

void MetricsWriter::write(const Json& record) {
  file_ << record.dump() << '\n';
  if (!file_.flush()) fail("cannot write {}", path_);
}

}  // namespace ws
