#include "io/zip.h"

#include <algorithm>
#include <limits>
#include <set>

#include "io/little_endian.h"
#include "support/error.h"

namespace ws {
namespace {

// Sections 4.3 and 4.5 of PKWARE's APPNOTE: signatures, and bytes of each record without its variable parts.
constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocatorBytes = 20, kMaxComment = 65535;
constexpr uint16_t kExtra64 = 1, kStored = 0, kDeflated = 8, kEncrypted = 1;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // the number stands in the zip64 field

struct Directory {
  uint64_t count, bytes, offset;
};

bool has(Bytes bytes, uint64_t at, uint64_t count) { return at <= bytes.size() && count <= bytes.size() - at; }

Directory find_directory(Bytes all, const std::string& path) {
  if (all.size() < kEndBytes) fail("{}: {} bytes are too few for an npz archive", path, all.size());
  size_t first = all.size() - std::min(all.size(), kEndBytes + kMaxComment), at = all.size() - kEndBytes;
  auto is_end = [&] {
    return little_endian<uint32_t>(all, at) == kEnd && at + kEndBytes + little_endian<uint16_t>(all, at + 20) == all.size();
  };
  while (!is_end()) {
    if (at == first) fail("{}: not an npz archive, or cut short: its directory is missing", path);
    --at;
  }
  if (little_endian<uint16_t>(all, at + 4) != 0 || little_endian<uint16_t>(all, at + 6) != 0)
    fail("{}: archives in several parts are not read", path);
  Directory d{little_endian<uint16_t>(all, at + 10), little_endian<uint32_t>(all, at + 12),
              little_endian<uint32_t>(all, at + 16)};
  if (d.count == 0xFFFF || d.bytes == kIn64 || d.offset == kIn64) {
    if (at < kLocatorBytes || little_endian<uint32_t>(all, at - kLocatorBytes) != kLocator64)
      fail("{}: damaged: the zip64 directory is missing", path);
    uint64_t end = little_endian<uint64_t>(all, at - kLocatorBytes + 8);
    if (!has(all, end, kEnd64Bytes) || little_endian<uint32_t>(all, end) != kEnd64)
      fail("{}: damaged: the zip64 directory is missing", path);
    d = {little_endian<uint64_t>(all, end + 32), little_endian<uint64_t>(all, end + 40), little_endian<uint64_t>(all, end + 48)};
  }
  if (!has(all, d.offset, d.bytes) || d.count > d.bytes / kCentralBytes)
    fail("{}: damaged: its directory of {} entries would stand at bytes {} to {} of {}", path, d.count, d.offset,
         static_cast<double>(d.offset) + static_cast<double>(d.bytes), all.size());
  return d;
}

// The numbers of a directory entry that did not fit 32 bits, in the order that the format fixes.
void read_extra64(Bytes extra, std::initializer_list<uint64_t*> numbers, const std::string& where) {
  for (size_t at = 0; at + 4 <= extra.size();) {
    uint16_t kind = little_endian<uint16_t>(extra, at), size = little_endian<uint16_t>(extra, at + 2);
    at += 4;
    if (!has(extra, at, size)) break;
    Bytes field = extra.subspan(at, size);
    at += size;
    if (kind != kExtra64) continue;
    size_t next = 0;
    for (uint64_t* number : numbers) {
      if (*number != kIn64) continue;
      if (!has(field, next, 8)) fail("{}: damaged: its zip64 sizes are missing", where);
      *number = little_endian<uint64_t>(field, next);
      next += 8;
    }
    return;
  }
  for (uint64_t* number : numbers)
    if (*number == kIn64) fail("{}: damaged: its zip64 sizes are missing", where);
}

}  // namespace

std::vector<ZipEntry> read_zip(const MappedFile& file) {
  Bytes all = file.bytes();
  Directory d = find_directory(all, file.path());
  Bytes directory = all.subspan(d.offset, d.bytes);
  std::vector<ZipEntry> entries;
  std::set<std::string> names;
  size_t at = 0;
  for (uint64_t i = 0; i < d.count; ++i) {
    if (!has(directory, at, kCentralBytes) || little_endian<uint32_t>(directory, at) != kCentral)
      fail("{}: damaged: entry {} of its directory is missing", file.path(), i);
    auto u16 = [&](size_t offset) { return little_endian<uint16_t>(directory, at + offset); };
    auto u32 = [&](size_t offset) { return little_endian<uint32_t>(directory, at + offset); };
    uint64_t name_bytes = u16(28), extra_bytes = u16(30), comment_bytes = u16(32);
    if (!has(directory, at + kCentralBytes, name_bytes + extra_bytes + comment_bytes))
      fail("{}: damaged: entry {} of its directory is cut short", file.path(), i);
    Bytes name = directory.subspan(at + kCentralBytes, name_bytes);
    ZipEntry entry;
    entry.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    std::string where = fmt::format("{}: \"{}\"", file.path(), entry.name);
    if (!names.insert(entry.name).second) fail("{} occurs twice", where);
    if (u16(8) & kEncrypted) fail("{} is encrypted", where);
    uint16_t method = u16(10);
    if (method != kStored && method != kDeflated)
      fail("{} is compressed by method {}; stored and deflated entries are read", where, method);
    entry.deflated = method == kDeflated;
    entry.crc = u32(16);
    entry.num_bytes = u32(24);
    uint64_t stored_bytes = u32(20), offset = u32(42);
    read_extra64(directory.subspan(at + kCentralBytes + name_bytes, extra_bytes), {&entry.num_bytes, &stored_bytes, &offset},
                 where);
    if (!has(all, offset, kLocalBytes) || little_endian<uint32_t>(all, offset) != kLocal)
      fail("{}: damaged: it is not where the directory says", where);
    uint64_t begin = offset + kLocalBytes + little_endian<uint16_t>(all, offset + 26) + little_endian<uint16_t>(all, offset + 28);
    if (!has(all, begin, stored_bytes)) fail("{}: cut short: it needs {} bytes from byte {}", where, stored_bytes, begin);
    entry.stored = all.subspan(begin, stored_bytes);
    if (!entry.deflated && entry.num_bytes != stored_bytes)
      fail("{}: damaged: {} bytes stored as {}", where, entry.num_bytes, stored_bytes);
    if (entry.deflated) check_inflated_size(entry.stored, entry.num_bytes, where);
    entries.push_back(std::move(entry));
    at += kCentralBytes + name_bytes + extra_bytes + comment_bytes;
  }
  return entries;
}

void read_zip_entry(const ZipEntry& entry, const std::string& where, const ByteSink& sink) {
  uint32_t crc = crc32_of(0, {});
  bool enough = false;
  auto pass_on = [&](Bytes piece) {
    crc = crc32_of(crc, piece);
    enough = !sink(piece);
    return !enough;
  };
  uint64_t total = entry.num_bytes;
  if (entry.deflated)
    total = inflate_bytes(entry.stored, Deflated::raw, entry.num_bytes, where, pass_on);
  else if (!entry.stored.empty())
    pass_on(entry.stored);
  if (enough) return;
  if (total != entry.num_bytes) fail("{}: damaged: it holds {} bytes, its directory says {}", where, total, entry.num_bytes);
  if (crc != entry.crc) fail("{}: damaged: its checksum is {:08x}, its directory says {:08x}", where, crc, entry.crc);
}

void ZipWriter::write(const std::string& text) {
  file_.write(text);
  at_ += text.size();
}

namespace {

constexpr uint16_t kVersion64 = 45, kUtf8Names = 1 << 11,
                   kDosDate = 33;  // the first day of 1980: files do not depend on the clock

// What a local and a central record share, from the version needed to the lengths of name and extra field.
std::string common_fields(uint32_t crc, uint64_t num_bytes, uint64_t name_bytes, uint16_t extra_bytes) {
  bool large = num_bytes >= kIn64;
  std::string text;
  append_little_endian(text, kVersion64);
  append_little_endian(text, kUtf8Names);
  append_little_endian(text, kStored);
  append_little_endian<uint16_t>(text, 0);
  append_little_endian(text, kDosDate);
  append_little_endian(text, crc);
  for (int i = 0; i < 2; ++i) append_little_endian(text, large ? kIn64 : static_cast<uint32_t>(num_bytes));
  append_little_endian(text, static_cast<uint16_t>(name_bytes));
  append_little_endian(text, extra_bytes);
  return text;
}

std::string extra64(std::initializer_list<uint64_t> numbers) {
  std::string text;
  append_little_endian(text, kExtra64);
  append_little_endian(text, static_cast<uint16_t>(8 * numbers.size()));
  for (uint64_t number : numbers) append_little_endian(text, number);
  return text;
}

}  // namespace

void ZipWriter::add(const std::string& name, const std::vector<Bytes>& pieces) {
  Written w{name, 0, at_, crc32_of(0, {})};
  for (Bytes piece : pieces) {
    w.num_bytes += piece.size();
    w.crc = crc32_of(w.crc, piece);
  }
  std::string extra = w.num_bytes >= kIn64 ? extra64({w.num_bytes, w.num_bytes}) : "";
  std::string head;
  append_little_endian(head, kLocal);
  write(head + common_fields(w.crc, w.num_bytes, name.size(), static_cast<uint16_t>(extra.size())) + name + extra);
  for (Bytes piece : pieces) file_.write(piece);
  at_ += w.num_bytes;
  entries_.push_back(std::move(w));
}

void ZipWriter::commit() {
  uint64_t begin = at_;
  for (const Written& w : entries_) {
    bool large = w.num_bytes >= kIn64 || w.offset >= kIn64;
    std::string head, tail, extra = large ? extra64({w.num_bytes, w.num_bytes, w.offset}) : "";
    append_little_endian(head, kCentral);
    append_little_endian(head, kVersion64);
    for (int i = 0; i < 3; ++i) append_little_endian<uint16_t>(tail, 0);  // comment, disk, attributes within
    append_little_endian<uint32_t>(tail, 0);                              // attributes outside
    append_little_endian(tail, large ? kIn64 : static_cast<uint32_t>(w.offset));
    write(head + common_fields(w.crc, large ? kIn64 : w.num_bytes, w.name.size(), static_cast<uint16_t>(extra.size())) + tail +
          w.name + extra);
  }
  uint64_t bytes = at_ - begin, count = entries_.size(), end64 = at_;
  std::string end;
  if (count >= 0xFFFF || at_ >= kIn64) {
    append_little_endian(end, kEnd64);
    append_little_endian<uint64_t>(end, kEnd64Bytes - 12);
    append_little_endian(end, kVersion64);
    append_little_endian(end, kVersion64);
    append_little_endian<uint64_t>(end, 0);  // the two numbers of parts
    for (uint64_t number : {count, count, bytes, begin}) append_little_endian(end, number);
    append_little_endian(end, kLocator64);
    append_little_endian<uint32_t>(end, 0);
    append_little_endian(end, end64);
    append_little_endian<uint32_t>(end, 1);
  }
  append_little_endian(end, kEnd);
  append_little_endian<uint32_t>(end, 0);
  for (int i = 0; i < 2; ++i) append_little_endian(end, static_cast<uint16_t>(std::min<uint64_t>(count, 0xFFFF)));
  append_little_endian(end, static_cast<uint32_t>(std::min<uint64_t>(bytes, kIn64)));
  append_little_endian(end, static_cast<uint32_t>(std::min<uint64_t>(begin, kIn64)));
  append_little_endian<uint16_t>(end, 0);
  write(end);
  file_.commit();
}

}  // namespace ws
