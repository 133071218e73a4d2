// Metrics of a run as JSON lines: one object a record, appended and flushed, so that a run that is cut keeps what it had.
#pragma once
#include <fstream>
#include <string>

#include "support/json.h"

namespace ws {

class MetricsWriter {
 public:
  /// `keep`: continue a file that is there (resume); else it starts empty.
  MetricsWriter(const std::string& path, bool keep);
  void write(const Json& record);

 private:
  std::string path_;
  std::ofstream file_;
};

}  // namespace ws
