#include "io/metrics.h"

#include "io/file.h"
#include "support/error.h"

namespace ws {

MetricsWriter::MetricsWriter(const std::string& path, bool keep)
    : path_(path), file_(path, keep ? std::ios::app : std::ios::trunc) {
  if (!file_) fail("cannot write {}", path_);
}

void MetricsWriter::write(const Json& record) {
  file_ << record.dump() << '\n';
  if (!file_.flush()) fail("cannot write {}", path_);
}

}  // namespace ws
