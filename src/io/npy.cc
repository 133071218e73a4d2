// NumPy's array files. An .npy file is "\x93NUMPY", a version, the length of a header, the header (a Python dictionary with descr,
// fortran_order and shape), and the elements. An .npz archive is a zip file of them.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <set>

#include "io/elements.h"
#include "io/little_endian.h"
#include "io/zip.h"
#include "support/error.h"
#include "wholestep/data.h"

namespace ws {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxHeaderBytes = 65536;

struct NpyHeader {
  FileElement element = {};
  bool fortran_order = false;
  std::vector<int64_t> dims;
  size_t bytes = 0;  // before the elements
};

/// The header's dictionary: three keys, values of a fixed kind each.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  NpyHeader parse() {
    NpyHeader header;
    std::set<std::string> seen;
    expect('{');
    while (!accept('}')) {
      std::string key = quoted();
      if (!seen.insert(key).second) fail("{}: the header names \"{}\" twice", where_, key);
      expect(':');
      if (key == "descr")
        header.element = element_of(quoted());
      else if (key == "fortran_order")
        header.fortran_order = boolean();
      else if (key == "shape")
        header.dims = tuple();
      else
        fail("{}: the header has the unknown key \"{}\"", where_, key);
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (at_ != text_.size()) refuse();
    if (seen.size() != 3) fail("{}: the header must name descr, fortran_order and shape", where_);
    return header;
  }

 private:
  [[noreturn]] void refuse() const { fail("{}: the header is not what NumPy writes, at its byte {}", where_, at_); }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) refuse();
  }
  std::string quoted() {
    skip_space();
    if (at_ < text_.size() && (text_[at_] == '[' || text_[at_] == '(')) fail("{}: arrays of records are not read", where_);
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) refuse();
    size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) refuse();
    std::string word(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return word;
  }
  bool boolean() {
    skip_space();
    for (std::string_view word : {"True", "False"})
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    refuse();
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> dims;
    expect('(');
    while (!accept(')')) {
      skip_space();
      int64_t dim = 0;
      auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), dim);
      if (problem != std::errc() || dim < 0) refuse();
      at_ = static_cast<size_t>(end - text_.data());
      dims.push_back(dim);
      if (dims.size() > kMaxRank) fail("{}: arrays of more than {} dims are not read", where_, kMaxRank);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return dims;
  }
  FileElement element_of(const std::string& word) const {
    auto unread = [&] {
      fail("{}: elements \"{}\" are not read; floats (f2, f4, f8), whole numbers and booleans are", where_, word);
    };
    if (word.size() != 3 || std::string_view("<>|=").find(word[0]) == std::string_view::npos) unread();
    FileElement e{ElementKind::floating, word[2] - '0', word[0] == '>'};
    bool whole = e.bytes == 1 || e.bytes == 2 || e.bytes == 4 || e.bytes == 8;
    switch (word[1]) {
      case 'f': whole = whole && e.bytes > 1; break;
      case 'i': e.kind = ElementKind::signed_whole; break;
      case 'u': e.kind = ElementKind::unsigned_whole; break;
      case 'b': e.kind = ElementKind::boolean, whole = e.bytes == 1; break;
      default: whole = false;
    }
    if (!whole) unread();
    return e;
  }

  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
};

/// From the first bytes of a file (the whole header must be among them) and the size of all of it, which must fit.
NpyHeader read_header(Bytes begin, uint64_t total, const std::string& where) {
  std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  if (text.size() < 10 || !text.starts_with(kMagic)) fail("{} is not an npy array", where);
  int version = static_cast<unsigned char>(text[6]);
  if (version < 1 || version > 3) fail("{}: version {} of the npy format is not read", where, version);
  size_t start = version == 1 ? 10 : 12;
  if (text.size() < start) fail("{}: cut short", where);
  uint64_t length = version == 1 ? little_endian<uint16_t>(begin, 8) : little_endian<uint32_t>(begin, 8);
  if (length > text.size() - start) fail("{}: cut short, or a header of {} bytes, which is too long", where, length);
  NpyHeader header = HeaderParser(text.substr(start, length), where).parse();
  header.bytes = start + length;
  int64_t need = header.element.bytes;
  for (int64_t dim : header.dims)
    if (__builtin_mul_overflow(need, dim, &need)) fail("{}: the shape ({}) is too large", where, fmt::join(header.dims, ", "));
  if (static_cast<uint64_t>(need) != total - header.bytes)
    fail("{}: an array of shape ({}) takes {} bytes, the file has {}", where, fmt::join(header.dims, ", "), need,
         total - header.bytes);
  return header;
}

Tensor read_array(const NpyHeader& header, Bytes elements, const std::string& where) {
  if (!header.fortran_order) return tensor_of_elements(elements, header.element, Shape(header.dims), where);
  std::vector<int64_t> reversed(header.dims.rbegin(), header.dims.rend()), axes;
  for (size_t i = reversed.size(); i-- > 0;) axes.push_back(static_cast<int64_t>(i));
  NoGrad no_grad;
  return tensor_of_elements(elements, header.element, Shape(reversed), where).transpose(axes).contiguous();
}

Tensor read_deflated(const ZipEntry& entry, const std::string& where) {
  std::vector<std::byte> bytes;
  read_zip_entry(entry, where, [&](Bytes piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return bytes.size() < kMaxHeaderBytes;
  });
  NpyHeader header = read_header(bytes, entry.num_bytes, where);
  read_zip_entry(entry, where, [](Bytes) { return true; });  // all is right, before memory is taken
  bytes.clear();
  bytes.reserve(entry.num_bytes);
  read_zip_entry(entry, where, [&](Bytes piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return true;
  });
  return read_array(header, Bytes(bytes).subspan(header.bytes), where);
}

Tensor read_stored(Bytes all, const std::string& where) {
  NpyHeader header = read_header(all, all.size(), where);
  return read_array(header, all.subspan(header.bytes), where);
}

const char* word_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
    case DType::bf16: return "<f4";
    case DType::f64: return "<f8";
    case DType::i32: return "<i4";
    case DType::u32: return "<u4";
    case DType::boolean: return "|b1";
  }
  return "";
}

/// `tensor` becomes what is written: dense, and not bf16.
std::string make_header(Tensor& tensor) {
  NoGrad no_grad;
  if (tensor.dtype() == DType::bf16) tensor = tensor.cast(DType::f32);
  tensor = tensor.contiguous();
  std::string dims;
  for (int64_t dim : tensor.shape()) dims += fmt::format("{}, ", dim);
  if (tensor.rank() > 1) dims.resize(dims.size() - 2);
  if (tensor.rank() == 1) dims.pop_back();
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", word_of(tensor.dtype()), dims);
  text.append(63 - (10 + text.size()) % 64, ' ');  // the elements begin at a multiple of 64
  text += '\n';
  std::string header(kMagic);
  header += '\1';
  header += '\0';
  append_little_endian(header, static_cast<uint16_t>(text.size()));
  return header + text;
}

Bytes elements_of(const Tensor& dense) {
  return {static_cast<const std::byte*>(dense.data()), static_cast<size_t>(dense.size()) * size_of(dense.dtype())};
}

}  // namespace

Tensor load_npy(const std::string& path) {
  MappedFile file(path);
  return read_stored(file.bytes(), path);
}

NamedTensors load_npz(const std::string& path) {
  MappedFile file(path);
  NamedTensors result;
  for (const ZipEntry& entry : read_zip(file)) {
    std::string where = fmt::format("{}: \"{}\"", path, entry.name);
    std::string name = entry.name.ends_with(".npy") ? entry.name.substr(0, entry.name.size() - 4) : entry.name;
    if (!entry.deflated) read_zip_entry(entry, where, [](Bytes) { return true; });
    result.emplace_back(name, entry.deflated ? read_deflated(entry, where) : read_stored(entry.stored, where));
  }
  return result;
}

void save_npy(const std::string& path, const Tensor& tensor) {
  Tensor dense = tensor;
  std::string header = make_header(dense);
  AtomicFile file(path);
  file.write(header);
  file.write(elements_of(dense));
  file.commit();
}

void save_npz(const std::string& path, const NamedTensors& tensors) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors)
    if (!names.insert(name).second) fail("cannot write {}: the name \"{}\" occurs twice", path, name);
  ZipWriter archive(path);
  for (const auto& [name, tensor] : tensors) {
    Tensor dense = tensor;
    std::string header = make_header(dense);
    archive.add(name + ".npy", {std::as_bytes(std::span(header)), elements_of(dense)});
  }
  archive.commit();
}

}  // namespace ws
