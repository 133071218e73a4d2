// The built-in corpus: asks Debian's `bible` for every verse once, then keeps the text in the cache folder.
#include <cstdio>

#include "io/corpus.h"
#include "io/file.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/log.h"

namespace ws {
namespace {

constexpr size_t kFewestBytes = 4'000'000;  // the whole text has a little more; less means that it was cut

// Lines "Ge1:1 In the beginning ..." without their labels.
std::string strip_labels(std::string_view lines) {
  std::string out;
  out.reserve(lines.size());
  while (!lines.empty()) {
    std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    size_t space = line.find(' ');
    std::string_view label = line.substr(0, space);
    bool labelled = space != std::string_view::npos && label.find(':') != std::string_view::npos && label.back() >= '0' &&
                    label.back() <= '9';
    out += labelled ? line.substr(space + 1) : line;
    out += '\n';
  }
  return out;
}

std::string ask_bible() {
  std::string out;
  FILE* pipe = ::popen("bible -f gen1:1-rev22:21 2>/dev/null </dev/null", "r");
  if (!pipe) fail("cannot start the program bible");
  char buffer[65536];
  for (size_t n; (n = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) out.append(buffer, n);
  if (::pclose(pipe) != 0 || out.size() < kFewestBytes)
    fail("the built-in corpus needs the Debian package bible-kjv (apt-get install bible-kjv); --text FILE takes another text");
  return strip_labels(out);
}

}  // namespace

std::string built_in_text() {
  std::string folder = cache_folder() + "/corpora", path = folder + "/kjv.txt";
  std::error_code problem;
  if (std::filesystem::file_size(path, problem) >= kFewestBytes && !problem) return std::string(MappedFile(path).text());
  std::string text = ask_bible();
  try {
    std::filesystem::create_directories(folder);
    write_file(path, text);
  } catch (const std::exception& e) {
    WS_LOG(1, "the built-in corpus is not kept: {}", e.what());
  }
  return text;
}

}  // namespace ws
