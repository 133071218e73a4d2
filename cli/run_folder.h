// The folder that a run trains into: one process at a time writes there.
#pragma once
#include <string>

#include "io/file.h"

namespace ws::cli {

/// Whether a run saved a checkpoint there. Metrics alone are of a run that failed before it had anything to keep.
bool holds_saved_run(const std::string& folder);
bool holds_metrics(const std::string& folder);

/// Whether a ladder reported there.
bool holds_report(const std::string& folder);
/// Whether what is saved there is a ladder's, by what its checkpoint says: a report may lie beside a run of train.
bool holds_ladder(const std::string& folder);

/// An Error where a run in `out` could not be kept: `out` is a checkpoint or lies in one, which the run that it is of replaces with all
/// in it, or a link to nowhere stands where the checkpoint goes.
void check_can_keep(const std::string& out);

/// An Error where another process trains into `folder` now. Leaves nothing.
void check_not_in_use(const std::string& folder);

/// Makes the folder, as NewFolder does, and keeps other processes out while it lives: by a lock that ends with the process, however
/// that ends. An Error where another process holds it. File systems without locks are taken as they are.
class RunFolder {
 public:
  explicit RunFolder(const std::string& path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

 private:
  NewFolder folder_;
  std::string lock_path_;
  int descriptor_ = -1;
};

}  // namespace ws::cli
