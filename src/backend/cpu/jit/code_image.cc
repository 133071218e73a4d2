#include "backend/cpu/jit/code_image.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "support/error.h"

namespace ws::cpu {
namespace {

constexpr uint64_t round_up(uint64_t n, uint64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

class Linker {
 public:
  explicit Linker(std::span<const uint8_t> object) : object_(object) {
    const auto header = read<Elf64_Ehdr>(0);
    WS_ASSERT(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_type == ET_REL && header.e_machine == EM_X86_64,
              "not an x86-64 object");
    for (unsigned i = 0; i < header.e_shnum; ++i) sections_.push_back(read<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
  }

  CodeImage link(std::string_view entry_name) {
    CodeImage image;
    offsets_.assign(sections_.size(), 0);
    for (const bool code : {true, false}) lay_out(code, image.bytes);
    for (const Elf64_Shdr& s : sections_) {
      if (s.sh_type == SHT_RELA && is_loaded(section(s.sh_info))) relocate(s, image.bytes);
      if (s.sh_type == SHT_SYMTAB) image.entry = find(s, entry_name);
    }
    return image;
  }

 private:
  template <class T>
  T read(uint64_t offset) const {
    WS_ASSERT(offset + sizeof(T) <= object_.size(), "object is cut short");
    T value;
    std::memcpy(&value, object_.data() + offset, sizeof(T));
    return value;
  }
  const Elf64_Shdr& section(uint64_t index) const {
    WS_ASSERT(index < sections_.size(), "section {}", index);
    return sections_[index];
  }
  static bool is_loaded(const Elf64_Shdr& s) { return (s.sh_flags & SHF_ALLOC) != 0 && s.sh_size > 0; }

  void lay_out(bool code, std::vector<uint8_t>& bytes) {
    for (size_t i = 0; i < sections_.size(); ++i) {
      const Elf64_Shdr& s = sections_[i];
      if (!is_loaded(s) || ((s.sh_flags & SHF_EXECINSTR) != 0) != code) continue;
      WS_ASSERT(s.sh_type == SHT_PROGBITS && (s.sh_flags & SHF_WRITE) == 0, "section {} of a kernel holds data to write", i);
      WS_ASSERT(s.sh_addralign <= kCodeAlignment && s.sh_offset + s.sh_size <= object_.size(), "section {}", i);
      offsets_[i] = round_up(bytes.size(), std::max<uint64_t>(s.sh_addralign, 1));
      bytes.resize(offsets_[i] + s.sh_size);
      std::memcpy(bytes.data() + offsets_[i], object_.data() + s.sh_offset, s.sh_size);
    }
  }

  void relocate(const Elf64_Shdr& table, std::vector<uint8_t>& bytes) const {
    const Elf64_Shdr& symbols = section(table.sh_link);
    for (uint64_t at = 0; at < table.sh_size; at += sizeof(Elf64_Rela)) {
      const auto rela = read<Elf64_Rela>(table.sh_offset + at);
      const auto symbol = read<Elf64_Sym>(symbols.sh_offset + ELF64_R_SYM(rela.r_info) * sizeof(Elf64_Sym));
      WS_ASSERT(symbol.st_shndx != SHN_UNDEF && symbol.st_shndx < SHN_LORESERVE, "a kernel calls '{}'", name_of(symbols, symbol));
      const uint64_t type = ELF64_R_TYPE(rela.r_info);
      WS_ASSERT(type == R_X86_64_PC32 || type == R_X86_64_PLT32, "relocation type {}", type);
      const uint64_t place = offsets_[table.sh_info] + rela.r_offset;
      WS_ASSERT(place + 4 <= bytes.size(), "relocation outside its section");
      const int64_t target = static_cast<int64_t>(offsets_[symbol.st_shndx] + symbol.st_value) + rela.r_addend;
      const auto relative = static_cast<int32_t>(target - static_cast<int64_t>(place));
      std::memcpy(bytes.data() + place, &relative, 4);
    }
  }

  std::string_view name_of(const Elf64_Shdr& symbols, const Elf64_Sym& symbol) const {
    const Elf64_Shdr& names = section(symbols.sh_link);
    WS_ASSERT(names.sh_offset + symbol.st_name < object_.size(), "symbol name");
    return reinterpret_cast<const char*>(object_.data() + names.sh_offset + symbol.st_name);
  }

  uint64_t find(const Elf64_Shdr& symbols, std::string_view name) const {
    for (uint64_t at = 0; at < symbols.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read<Elf64_Sym>(symbols.sh_offset + at);
      if (name_of(symbols, symbol) == name) return offsets_[symbol.st_shndx] + symbol.st_value;
    }
    WS_ASSERT(false, "object has no '{}'", name);
    return 0;
  }

  std::span<const uint8_t> object_;
  std::vector<Elf64_Shdr> sections_;
  std::vector<uint64_t> offsets_;  // in the image, by section
};

}  // namespace

CodeImage link_object(std::span<const uint8_t> object, std::string_view entry_name) { return Linker(object).link(entry_name); }

CodeMemory::~CodeMemory() {
  for (const Mapping& m : mappings_) munmap(m.address, m.size);
}

std::vector<void*> CodeMemory::place(std::span<const CodeImage* const> images) {
  std::vector<void*> entries;
  if (images.empty()) return entries;
  uint64_t size = 0;
  for (const CodeImage* image : images) size += round_up(image->bytes.size(), kCodeAlignment);
  size = round_up(size, static_cast<uint64_t>(sysconf(_SC_PAGESIZE)));
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail_at_run("no memory for {} bytes of machine code: {}", size, std::strerror(errno));
  mappings_.push_back({memory, size});
  auto* at = static_cast<uint8_t*>(memory);
  for (const CodeImage* image : images) {
    std::memcpy(at, image->bytes.data(), image->bytes.size());
    entries.push_back(at + image->entry);
    at += round_up(image->bytes.size(), kCodeAlignment);
  }
  if (mprotect(memory, size, PROT_READ | PROT_EXEC) != 0)
    fail_at_run("the system refuses to make memory executable ({}), which compiled kernels need", std::strerror(errno));
  return entries;
}

}  // namespace ws::cpu
