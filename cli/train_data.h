// Where the batches of `train` come from: windows of a text, or samples of a data set.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "io/corpus.h"
#include "support/json.h"
#include "wholestep/random.h"
#include "workload.h"

namespace ws::cli {

struct TrainData {
  /// The batch of a step, by seed and step only. For steps in ascending order, from one thread.
  std::function<Samples(int64_t step)> batch;
  Samples validation;      // undefined where there is none
  bool is_labels = false;  // y i32 [N]: predictions can be right or wrong
  double steps_per_epoch = 1, items_per_step = 1;
  std::string item;              // "tokens", "samples"
  int64_t size = 0;              // of the whole, in those
  Shape features;                // of a sample of X
  int64_t num_outputs = 0;       // classes, or numbers of y
  Json config = Json::object();  // what a checkpoint keeps of it
};

/// The first element that is NaN or infinite, in row-major order, of a tensor of floats.
struct NotFinite {
  int64_t index;
  float value;
};
std::optional<NotFinite> first_not_finite(const Tensor& t);

/// fashion-mnist, a folder, .npz, .safetensors, .csv, .tsv in any case; else it is a text.
bool is_data_set(const std::string& data);

TrainData text_data(const Corpus& corpus, uint64_t seed, int64_t batch, int64_t seq);
/// `loss`: "mse", "cross_entropy", or "" for what y asks for, which it becomes. y becomes what that loss takes; an Error where it cannot.
/// `as_numbers`: whole numbers in X become f32 too.
TrainData sample_data(const std::string& source, const std::string& target, uint64_t seed, int64_t batch, bool as_numbers,
                      std::string& loss);

}  // namespace ws::cli
