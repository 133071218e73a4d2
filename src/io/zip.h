// Zip archives as NumPy writes them: entries stored or deflated, sizes above 4 GiB in the zip64 fields. No encryption, no archive in
// several parts.
#pragma once
#include <string>
#include <vector>

#include "io/inflate.h"

namespace ws {

struct ZipEntry {
  std::string name;
  bool deflated = false;
  uint32_t crc = 0;
  uint64_t num_bytes = 0;  // inflated
  Bytes stored;            // as they stand in the archive
};

/// Entries in the order of the archive's directory. An Error names the file, the entry and the fault.
std::vector<ZipEntry> read_zip(const MappedFile& file);
/// The entry's bytes in pieces, until the sink has enough. Read to the end, size and checksum are verified.
void read_zip_entry(const ZipEntry& entry, const std::string& where, const ByteSink& sink);

/// Writes an archive of stored entries, piece by piece.
class ZipWriter {
 public:
  explicit ZipWriter(const std::string& path) : file_(path) {}
  void add(const std::string& name, const std::vector<Bytes>& pieces);
  void commit();

 private:
  struct Written {
    std::string name;
    uint64_t num_bytes, offset;
    uint32_t crc;
  };
  void write(const std::string& text);
  AtomicFile file_;
  uint64_t at_ = 0;
  std::vector<Written> entries_;
};

}  // namespace ws
