#include "text_data.h"

#include <algorithm>

#include "io/file.h"
#include "support/error.h"

namespace ws::cli {
namespace {

bool is_built_in(const std::string& path) { return path.empty() || path == "builtin"; }

}  // namespace

Corpus open_text(const std::string& path, const std::string& vocab, int64_t block) {
  if (vocab != "letters" && vocab != "utf8") fail("--vocab must be letters or utf8, not '{}'", vocab);
  if (block < 1) fail("--seq must be at least 1, not {}", block);
  auto kind = vocab == "letters" ? Vocabulary::Kind::kLetters : Vocabulary::Kind::kUtf8;
  if (is_built_in(path)) return make_corpus("the built-in corpus", built_in_text(), block, kind);
  return load_corpus(path, block, kind);
}

Corpus open_text(const std::string& path, Vocabulary vocabulary, int64_t block) {
  if (is_built_in(path)) return make_corpus("the built-in corpus", built_in_text(), block, std::move(vocabulary));
  MappedFile file(path);
  return make_corpus(path, file.text(), block, std::move(vocabulary));
}

Json text_config(const Corpus& corpus, int64_t block) {
  const std::vector<std::string>& all = corpus.vocabulary.symbols();
  std::vector<std::string> symbols(all.begin() + 1, all.end());  // without the unknown one
  return {{"vocabulary", {{"kind", corpus.vocabulary.kind_name()}, {"symbols", symbols}}}, {"block", block}};
}

Samples WindowSampler::gather(std::span<const int64_t> starts) const {
  auto rows = static_cast<int64_t>(starts.size());
  std::vector<int32_t> x(starts.size() * static_cast<size_t>(windows_.block())), y(x.size());
  windows_.gather(starts, x, y);
  return {Tensor::from(x, {rows, windows_.block()}), Tensor::from(y, {rows, windows_.block()})};
}

Samples WindowSampler::draw(int64_t step, int64_t batch) const {
  RandomStream stream(key_.fold(static_cast<uint64_t>(step)));
  std::vector<int64_t> starts(static_cast<size_t>(batch));
  for (int64_t& s : starts) s = static_cast<int64_t>(stream.below(static_cast<uint64_t>(windows_.count())));
  return gather(starts);
}

Samples WindowSampler::spread(int64_t count) const {
  count = std::min(count, windows_.count());
  std::vector<int64_t> starts(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) starts[static_cast<size_t>(i)] = count > 1 ? (windows_.count() - 1) * i / (count - 1) : 0;
  return gather(starts);
}

}  // namespace ws::cli
