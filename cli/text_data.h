// Text as training data of the commands: which corpus, and batches of windows that depend on seed and step only, so that a resumed
// run draws what the uninterrupted one would have drawn.
#pragma once
#include <string>
#include <vector>

#include "io/corpus.h"
#include "support/json.h"
#include "wholestep/random.h"
#include "workload.h"

namespace ws::cli {

/// `path` empty or "builtin": the built-in corpus. `vocab`: letters or utf8.
Corpus open_text(const std::string& path, const std::string& vocab, int64_t block);
/// The same text read with the vocabulary of a checkpoint.
Corpus open_text(const std::string& path, Vocabulary vocabulary, int64_t block);

/// What a checkpoint keeps of a text: its vocabulary and the length of its windows.
Json text_config(const Corpus& corpus, int64_t block);

class WindowSampler {
 public:
  WindowSampler(std::span<const int32_t> tokens, int64_t block, Key key) : windows_(tokens, block), key_(key) {}
  /// `batch` windows with starts drawn uniformly: x and y i32 [batch, block].
  Samples draw(int64_t step, int64_t batch) const;
  /// `count` windows spread evenly over the tokens: for validation.
  Samples spread(int64_t count) const;
  int64_t count() const { return windows_.count(); }

 private:
  Samples gather(std::span<const int64_t> starts) const;
  TokenWindows windows_;
  Key key_;
};

}  // namespace ws::cli
