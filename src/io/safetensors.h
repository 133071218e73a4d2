// The safetensors format: 8 bytes of header length (little-endian), a JSON header, raw row-major data. The reader is strict: what
// the format notes forbid is an Error that names the file and the fault. It maps the file and allocates nothing by numbers
// that the file claims.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "io/file.h"

namespace ws {

/// One tensor in a file. `dtype` is the format's word: F32, BF16, I64...
struct SafetensorsEntry {
  std::string name, dtype;
  std::vector<int64_t> shape;
  Bytes bytes;
};

class Safetensors {
 public:
  explicit Safetensors(const std::string& path);
  /// In the order of their data.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }
  /// The entry of that name, or nullptr.
  const SafetensorsEntry* find(const std::string& name) const;
  const std::string& path() const { return file_.path(); }

 private:
  MappedFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

/// Bytes of one element of a format dtype; 0 for an unknown word.
int64_t safetensors_element_bytes(const std::string& dtype);

/// Writes atomically: data of wider elements first, so that everything is aligned. Names must be unique and not "__metadata__".
void write_safetensors(const std::string& path, const std::vector<SafetensorsEntry>& entries,
                       const std::vector<std::pair<std::string, std::string>>& metadata = {});

}  // namespace ws
