#include "train_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "api/batches.h"
#include "io/file.h"
#include "support/error.h"
#include "text_data.h"

namespace ws::cli {
namespace {

// y as labels i32 [N], from whole numbers of any dtype.
Tensor as_labels(const Tensor& y, const std::string& source) {
  std::vector<double> values = y.to_vector<double>();
  if (static_cast<int64_t>(values.size()) != y.dim(0))
    fail("{}: y {} must be one label a sample for the loss cross_entropy", source, y.shape().str());
  std::vector<int32_t> labels;
  for (double v : values) {
    if (v != std::floor(v) || v < 0 || v >= 1e6)
      fail("{}: the loss cross_entropy needs labels 0, 1, .. in y, which holds {}", source, v);
    labels.push_back(static_cast<int32_t>(v));
  }
  return Tensor::from(labels, {y.dim(0)});
}

Tensor to_floats(const Tensor& t) {
  NoGrad no_grad;
  return t.dtype() == DType::f32 ? t : t.cast(DType::f32);
}

// y as numbers f32 [N, ..], with a dim of their own where they are one a sample.
Tensor as_targets(const Tensor& y) {
  Tensor numbers = to_floats(y);
  return numbers.rank() == 1 ? numbers.reshape({-1, 1}) : numbers;
}

int64_t highest(const Tensor& labels) {
  std::vector<int32_t> values = labels.to_vector<int32_t>();
  return *std::max_element(values.begin(), values.end());
}

/// Files of tables say line and column by themselves.
void check_finite(const Tensor& t, const char* name, const std::string& source) {
  if (!t.defined()) return;
  if (const auto bad = first_not_finite(t))
    fail("{}: {} holds {} in sample {} (from 0); leave it out or replace it", source, name, bad->value,
         bad->index / (t.size() / t.dim(0)));
}

}  // namespace

std::optional<NotFinite> first_not_finite(const Tensor& t) {
  if (!is_floating(t.dtype())) return std::nullopt;
  const std::vector<float> values = t.to_vector<float>();
  const auto bad = std::ranges::find_if(values, [](float x) { return !std::isfinite(x); });
  if (bad == values.end()) return std::nullopt;
  return NotFinite{bad - values.begin(), *bad};
}

bool is_data_set(const std::string& data) {
  std::error_code ignored;
  const auto ends = [&](const char* extension) { return has_extension(data, extension); };
  return data == "fashion-mnist" || ends(".npz") || ends(".safetensors") || ends(".csv") || ends(".tsv") ||
         std::filesystem::is_directory(data, ignored);
}

TrainData text_data(const Corpus& corpus, uint64_t seed, int64_t batch, int64_t seq) {
  TrainData d;
  auto train = std::make_shared<WindowSampler>(corpus.train(), seq, Key(seed).fold("windows"));
  d.batch = [train, batch](int64_t step) { return train->draw(step, batch); };
  if (static_cast<int64_t>(corpus.validation().size()) > seq)
    d.validation = WindowSampler(corpus.validation(), seq, Key(0)).spread(std::max<int64_t>(batch, 64));
  d.items_per_step = static_cast<double>(batch * seq);
  d.steps_per_epoch = std::max(1.0, static_cast<double>(corpus.num_train) / d.items_per_step);
  d.item = "tokens";
  d.size = static_cast<int64_t>(corpus.tokens.size());
  d.config = text_config(corpus, seq);
  return d;
}

TrainData sample_data(const std::string& source, const std::string& target, uint64_t seed, int64_t batch, bool as_numbers,
                      std::string& loss) {
  Dataset set = load_dataset(source, target);
  for (Tensor* X : {&set.X, &set.X_val})
    if (as_numbers && X->defined()) *X = to_floats(*X);
  check_finite(set.X, "X", source), check_finite(set.y, "y", source);
  check_finite(set.X_val, "X_val", source), check_finite(set.y_val, "y_val", source);
  if (loss.empty()) loss = is_floating(set.y.dtype()) ? "mse" : "cross_entropy";
  if (set.X.rank() < 2) fail("{}: X {} needs a dim of features beside the samples", source, set.X.shape().str());
  TrainData d;
  d.is_labels = loss == "cross_entropy";
  for (Tensor* y : {&set.y, &set.y_val})
    if (y->defined()) *y = d.is_labels ? as_labels(*y, source) : as_targets(*y);
  if (d.is_labels) {
    d.num_outputs = 1 + std::max(highest(set.y), set.y_val.defined() ? highest(set.y_val) : 0);
  } else {
    d.num_outputs = set.y.size() / set.y.dim(0);
  }
  auto batches = std::make_shared<EpochBatches>(Batches(set.X, set.y, batch, false), Key(seed).fold("order"));
  d.batch = [batches](int64_t step) {
    auto [x, y] = batches->at(step);
    return Samples{x, y};
  };
  d.validation = {set.X_val, set.y_val};
  d.size = set.X.dim(0);
  d.steps_per_epoch = static_cast<double>((d.size + batch - 1) / batch);
  d.items_per_step = static_cast<double>(d.size) / d.steps_per_epoch;  // the last batch may be smaller
  d.item = "samples";
  d.features = Shape(set.X.shape().dims().subspan(1));
  return d;
}

}  // namespace ws::cli
