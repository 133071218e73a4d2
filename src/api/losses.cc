#include "wholestep/losses.h"

#include "support/error.h"

namespace ws {

Tensor mse(const Tensor& prediction, const Tensor& target) {
  if (!(prediction.shape() == target.shape()))
    fail("mse: prediction {} and target {} must have one shape; reshape one of them", prediction.shape().str(),
         target.shape().str());
  if (!is_floating(target.dtype())) fail("mse: the target is {}, but must be floating", name_of(target.dtype()));
  if (prediction.size() == 0) fail("mse: no elements in {}; the mean of nothing is not defined", prediction.shape().str());
  return square(prediction - target).mean();
}

Tensor cross_entropy(const Tensor& logits, const Tensor& labels, const CrossEntropyOptions& options) {
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
  if (!options.ignore_index) return row_loss.mean();
  Tensor count = counted.cast(DType::f32).sum();
  return where(counted, row_loss, 0.0).sum() / maximum(count, 1.0);
}

}  // namespace ws
