// Where training data comes from, by name or by the kind of file.
#include <algorithm>
#include <tuple>

#include "io/file.h"
#include "io/tensors.h"
#include "support/error.h"
#include "support/printable.h"
#include "wholestep/data.h"

namespace ws {
namespace {

constexpr const char* kFashionMnist = "/usr/share/datasets/fashion-mnist";

constexpr const char* kIdxFiles[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                     "t10k-labels-idx1-ubyte"};

std::pair<Tensor, Tensor> load_idx_pair(const std::string& images_path, const std::string& labels_path) {
  Tensor images = load_idx_images(images_path), labels = load_idx(labels_path);
  if (images.dim(0) < 1) fail("{} holds no images", images_path);
  if (images.dim(0) != labels.dim(0))
    fail("{} holds {} images, {} {} labels; there must be one label an image", images_path, images.dim(0), labels_path,
         labels.dim(0));
  return {std::move(images), std::move(labels)};
}

Dataset load_idx_folder(const std::string& folder) {
  std::vector<std::string> paths;
  for (const char* name : kIdxFiles) {
    std::error_code ignored;
    paths.push_back(folder + "/" + name);
    if (std::filesystem::exists(paths.back(), ignored)) continue;
    paths.back() += ".gz";
    if (!std::filesystem::exists(paths.back(), ignored))
      fail("{} lacks {}: a folder of IDX files holds {}, each as it is or as .gz", folder, name, fmt::join(kIdxFiles, ", "));
  }
  Dataset d;
  std::tie(d.X, d.y) = load_idx_pair(paths[0], paths[1]);
  std::tie(d.X_val, d.y_val) = load_idx_pair(paths[2], paths[3]);
  if (d.X.dim(1) != d.X_val.dim(1) || d.X.dim(2) != d.X_val.dim(2))
    fail("{} holds images of {} x {}, {} of {} x {}; they must be of one size", paths[0], d.X.dim(1), d.X.dim(2), paths[2],
         d.X_val.dim(1), d.X_val.dim(2));
  return d;
}

Dataset from_arrays(const std::string& path, const NamedTensors& arrays) {
  Dataset d;
  for (const auto& [name, tensor] : arrays) {
    Tensor* target = name == "X" ? &d.X : name == "y" ? &d.y : name == "X_val" ? &d.X_val : name == "y_val" ? &d.y_val : nullptr;
    if (target) *target = tensor;
  }
  if (!d.X.defined() || !d.y.defined()) fail("{} must hold the tensors X and y", path);
  if (d.X_val.defined() != d.y_val.defined()) fail("{} must hold both X_val and y_val, or neither", path);
  if (!d.X_val.defined()) return d;
  const auto refuse = [&](const char* name, const Tensor& validation, const Tensor& training) {
    fail("{}: {} {} must be like {} {} but for the number of samples", path, name, validation.shape().str(),
         std::string_view(name).substr(0, 1), training.shape().str());
  };
  const auto sample_dims = [](const Tensor& t) { return t.shape().dims().subspan(t.rank() > 0 ? 1 : 0); };
  if (!std::ranges::equal(sample_dims(d.X_val), sample_dims(d.X))) refuse("X_val", d.X_val, d.X);
  if (Shape(sample_dims(d.y_val)).num_elements() != Shape(sample_dims(d.y)).num_elements())
    refuse("y_val", d.y_val, d.y);  // [N] or [N, 1]
  return d;
}

std::string known_names(const std::vector<std::string>& columns) {
  constexpr size_t kNamed = 20;
  if (columns.empty()) return "are no names";
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(kNamed, columns.size()); ++i) names.push_back(printable(columns[i]));
  const std::string more = columns.size() > kNamed ? fmt::format(" and {} more", columns.size() - kNamed) : "";
  return fmt::format("are {}{}", fmt::join(names, ", "), more);
}

Dataset from_table(const std::string& path, const std::string& target) {
  Table table = load_csv(path);
  int64_t columns = table.values.dim(1), at = columns - 1;
  if (columns < 2) fail("{}: a table to train on needs two columns or more, it has {}", path, columns);
  if (!target.empty()) {
    auto found = std::find(table.columns.begin(), table.columns.end(), target);
    if (found == table.columns.end())
      fail("{} has no column named '{}'; there {}", path, printable(target), known_names(table.columns));
    at = found - table.columns.begin();
  }
  NoGrad no_grad;
  std::vector<Tensor> features;
  if (at > 0) features.push_back(table.values.slice(1, 0, at));
  if (at + 1 < columns) features.push_back(table.values.slice(1, at + 1, columns));
  Dataset d;
  d.X = (features.size() == 1 ? features[0] : concatenate(features, 1)).contiguous();
  d.y = table.values.slice(1, at, at + 1).contiguous();
  return d;
}

/// What layers and losses take: f32, or i32.
void make_trainable(Tensor& t, const char* name, const std::string& source) {
  if (!t.defined()) return;
  if (t.rank() < 1) fail("{}: a scalar holds no samples", source);
  NoGrad no_grad;
  if (t.dtype() == DType::u32)
    for (uint32_t value : t.to_vector<uint32_t>())
      if (value > static_cast<uint32_t>(INT32_MAX))
        fail("{}: {} holds {}, which does not fit 32 bits with a sign", source, name, value);
  if (is_floating(t.dtype()))
    t = t.cast(DType::f32);
  else if (t.dtype() != DType::i32)
    t = t.cast(DType::i32);
}

void check_lengths(const Tensor& X, const Tensor& y, const char* suffix, const std::string& source) {
  if (!X.defined()) return;
  if (X.dim(0) != y.dim(0))
    fail("{}: X{} {} and y{} {} must have the same number of samples", source, suffix, X.shape().str(), suffix, y.shape().str());
  if (X.dim(0) < 1) fail("{}: X{} {} holds no samples", source, suffix, X.shape().str());
}

}  // namespace

Dataset load_dataset(const std::string& source, const std::string& target) {
  std::error_code ignored;
  Dataset d;
  if (source == "fashion-mnist") {
    if (!std::filesystem::exists(kFashionMnist, ignored))
      fail("fashion-mnist needs the Debian package dataset-fashion-mnist (apt-get install dataset-fashion-mnist)");
    d = load_idx_folder(kFashionMnist);
  } else if (has_extension(source, ".csv") || has_extension(source, ".tsv")) {
    d = from_table(source, target);
  } else if (has_extension(source, ".npz")) {
    d = from_arrays(source, load_npz(source));
  } else if (has_extension(source, ".safetensors")) {
    d = from_arrays(source, load_tensors(source));
  } else if (std::filesystem::is_directory(source, ignored)) {
    d = load_idx_folder(source);
  } else {
    fail("'{}' is no data set: fashion-mnist, a folder of IDX files, or FILE.npz, FILE.safetensors, FILE.csv, FILE.tsv", source);
  }
  make_trainable(d.X, "X", source), make_trainable(d.y, "y", source);
  make_trainable(d.X_val, "X_val", source), make_trainable(d.y_val, "y_val", source);
  check_lengths(d.X, d.y, "", source);
  check_lengths(d.X_val, d.y_val, "_val", source);
  return d;
}

}  // namespace ws
