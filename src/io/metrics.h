// Metrics of a run as JSON lines: one object a record, appended and flushed, so that a run that is cut keeps what it had.
#pragma once
#include <fstream>
#include <string>

#include "support/json.h"

namespace ws {

class MetricsWriter {
 public:
  /// Starts empty.
  explicit MetricsWriter(const std::string& path);
  /// Continues a file that is there, without the records whose "step" is above `last_step` and without a line that was cut.
  MetricsWriter(const std::string& path, int64_t last_step);
  void write(const Json& record);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace ws
