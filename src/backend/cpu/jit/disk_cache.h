// DiskCache: CodeImages in a folder, one file each, shared by any number of processes. A file that is cut, altered or of another
// kernel counts as missing; a folder that is missing or read-only means no cache, never an error.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "backend/cpu/jit/code_image.h"

namespace ws::cpu {

class DiskCache {
 public:
  /// Empty: no cache. The folder is made where it is missing.
  explicit DiskCache(std::string directory);
  bool enabled() const { return !directory_.empty(); }
  std::optional<CodeImage> find(std::string_view key) const;
  /// Written under a temporary name and then renamed, so that no reader ever sees half an entry. False where it could not be written.
  bool insert(std::string_view key, const CodeImage& image) const;
  std::string path_of(std::string_view key) const;

 private:
  std::string directory_;
};

}  // namespace ws::cpu
