#include "wholestep/losses.h"

#include <cmath>

#include "api/rounding.h"
#include "support/error.h"

namespace ws {

namespace {

void check_pair(const char* loss, const Tensor& prediction, const Tensor& target) {
  if (!(prediction.shape() == target.shape()))
    fail("{}: prediction {} and target {} must have one shape; reshape one of them", loss, prediction.shape().str(),
         target.shape().str());
  if (!is_floating(target.dtype())) fail("{}: the target is {}, but must be floating", loss, name_of(target.dtype()));
  if (prediction.size() == 0) fail("{}: no elements in {}; the mean of nothing is not defined", loss, prediction.shape().str());
}

}  // namespace

Tensor mse(const Tensor& prediction, const Tensor& target) {
  check_pair("mse", prediction, target);
  return square(in_f32(prediction) - in_f32(target)).mean();
}

Tensor mae(const Tensor& prediction, const Tensor& target) {
  check_pair("mae", prediction, target);
  return abs(in_f32(prediction) - in_f32(target)).mean();
}

Tensor huber(const Tensor& prediction, const Tensor& target, double delta) {
  check_pair("huber", prediction, target);
  if (!(delta > 0)) fail("huber: delta {} must be above 0", delta);
  Tensor size = abs(in_f32(prediction) - in_f32(target));
  Tensor near = minimum(size, Tensor::full({}, delta, size.dtype()));
  // near * (size - near/2): both branches at once, and an infinite difference meets no 0.
  return (near * (size - near * 0.5)).mean();
}

Tensor bce_with_logits(const Tensor& given, const Tensor& target) {
  check_pair("bce with logits", given, target);
  Tensor logits = in_f32(given);
  Tensor positive = maximum(logits, Tensor::full({}, 0, logits.dtype()));  // half a gradient at 0, where |x| has none: sigmoid(0)
  Tensor linear = positive - logits * in_f32(target);
  return (linear + log1p(exp(-abs(logits)))).mean();
}

Tensor cross_entropy(const Tensor& given, const Tensor& labels, const CrossEntropyOptions& options) {
  Tensor logits = in_f32(given);
  if (labels.dtype() != DType::i32) fail("cross entropy: labels are {}, but must be i32", name_of(labels.dtype()));
  if (logits.rank() != labels.rank() + 1)
    fail("cross entropy: logits {} must have the dims of the labels {} and one more, the classes", logits.shape().str(),
         labels.shape().str());
  for (int axis = 0; axis < labels.rank(); ++axis)
    if (logits.dim(axis) != labels.dim(axis))
      fail("cross entropy: logits {} and labels {} differ in dim {}", logits.shape().str(), labels.shape().str(), axis);
  if (!(options.smoothing >= 0 && options.smoothing <= 1))
    fail("cross entropy: smoothing {} must lie in [0, 1]", options.smoothing);
  int64_t classes = logits.shape().back();
  if (logits.size() == 0) fail("cross entropy: no elements in {}; the mean of nothing is not defined", logits.shape().str());

  Tensor counted, label = labels;  // counted: bool [..], where rows are ignored at all
  if (options.ignore_index) {
    counted = ne(labels, Tensor::full({}, static_cast<double>(*options.ignore_index), DType::i32));
    label = where(counted, labels, Tensor::full({}, 0, DType::i32));
  }
  label = check_range(label, 0, classes, "label");
  bool weighted = !options.class_weights.empty();
  if (weighted && static_cast<int64_t>(options.class_weights.size()) != classes)
    fail("cross entropy: {} class weights given for the {} classes of logits {}", options.class_weights.size(), classes,
         logits.shape().str());
  std::vector<float> weights;
  for (double w : options.class_weights) {
    if (!(w >= 0 && std::isfinite(w))) fail("cross entropy: class weight {} must be a number of at least 0", w);
    weights.push_back(static_cast<float>(w));
  }

  Tensor shifted = logits - logits.max({-1}, true).detach();  // [..,C], at most 0; the maximum cancels, and so does its gradient
  Tensor log_sum = log(exp(shifted).sum({-1}));               // [..]
  // A comparison with the class index rather than a gather: it stays in the row's kernel, and so does its gradient.
  Tensor at_label = eq(Tensor::arange(classes), label.unsqueeze(-1));
  Tensor target_logit = where(at_label, shifted, 0.0).sum({-1});
  if (options.smoothing > 0) {
    Tensor everywhere = shifted.sum({-1}) * (options.smoothing / static_cast<double>(classes));
    target_logit = target_logit * (1 - options.smoothing) + everywhere;
  }
  Tensor row_loss = log_sum - target_logit;
  if (weighted) {
    Tensor of_class = Tensor::from(std::span<const float>(weights), {classes});
    Tensor row_weight = where(at_label, of_class, 0.0).sum({-1});  // [..]
    if (options.ignore_index) row_weight = where(counted, row_weight, 0.0);
    Tensor total = row_weight.sum();
    Tensor divisor = where(eq(total, 0.0), 1.0, total);
    return where(eq(row_weight, 0.0), 0.0, row_loss * row_weight).sum() / divisor;
  }
  if (!options.ignore_index) return row_loss.mean();
  Tensor count = counted.cast(DType::f32).sum();
  return where(counted, row_loss, 0.0).sum() / maximum(count, 1.0);
}

double SoftmaxCrossEntropy::weight_of(const Tensor& labels) const {
  if (!options.ignore_index && options.class_weights.empty()) return static_cast<double>(labels.size());
  double sum = 0;
  for (int32_t label : labels.to_vector<int32_t>()) {
    if (options.ignore_index && label == *options.ignore_index) continue;
    bool known = label >= 0 && static_cast<size_t>(label) < options.class_weights.size();  // others stop the step by themselves
    sum += options.class_weights.empty() ? 1 : known ? options.class_weights[static_cast<size_t>(label)] : 0;
  }
  return sum;
}

}  // namespace ws
