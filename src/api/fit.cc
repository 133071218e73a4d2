// Trainer::fit: epochs of steps with their history, validation, early stopping, callbacks and checkpoints.
#include <algorithm>
#include <cmath>

#include "api/fit_progress.h"
#include "api/trainer_impl.h"
#include "support/log.h"

namespace ws {
namespace {

void check_fit_options(const FitOptions& o) {
  if (o.epochs < 1) fail("fit: epochs is {}, but must be at least 1", o.epochs);
  if (o.batch_size < 1) fail("fit: batch_size is {}, but must be at least 1", o.batch_size);
  if (o.accumulate < 1) fail("fit: accumulate is {}, but must be at least 1", o.accumulate);
  if (o.X_val.defined() != o.y_val.defined()) fail("fit: give both X_val and y_val, or neither");
  if (o.patience && *o.patience < 1) fail("fit: patience is {}, but must be at least 1", *o.patience);
  if (o.patience && !o.X_val.defined()) fail("fit: patience needs a validation set: give X_val and y_val");
  if (o.checkpoint_every < 0) fail("fit: checkpoint_every is {}, but must be at least 0", o.checkpoint_every);
  if (o.checkpoint_dir.empty() && (o.resume || o.checkpoint_every > 0))
    fail("fit: resume and checkpoint_every need checkpoint_dir, the folder of the checkpoint");
  if (!(o.min_delta >= 0)) fail("fit: min_delta is {}, but must be at least 0", o.min_delta);
}

int64_t samples_in(const Batches& batches, int64_t first, int64_t count) {
  int64_t samples = 0;
  for (int64_t i = 0; i < count; ++i) samples += batches.num_samples(first + i);
  return samples;
}

/// Mean loss of the epoch's updates by their samples; skipped ones, whose loss is NaN, are left out.
double epoch_loss(const Batches& batches, const FitProgress& at, int64_t accumulate) {
  double sum = 0, counted = 0;
  int64_t batch = 0;
  for (size_t i = at.first_step_of_epoch; i < at.history.step_losses.size(); ++i, batch += accumulate) {
    double loss = at.history.step_losses[i];
    if (std::isnan(loss)) continue;
    auto samples = static_cast<double>(samples_in(batches, batch, std::min(accumulate, batches.count() - batch)));
    sum += samples * loss;
    counted += samples;
  }
  return sum / counted;
}

}  // namespace

History Trainer::fit(const Tensor& X, const Tensor& y, const FitOptions& options) {
  check_fit_options(options);
  if (!y.defined()) fail("fit: y is undefined");
  check_samples(X, y, "fit");
  bool validate = options.X_val.defined();
  if (validate) check_samples(options.X_val, options.y_val, "fit's validation set");
  Batches batches(X, y, options.batch_size, options.drop_last);
  if (batches.count() == 0) fail("fit: drop_last leaves nothing of {} samples in batches of {}", X.dim(0), options.batch_size);

  Impl& t = *impl_;
  ModeScope mode(t.model, true);
  EarlyStopping early(t.model, options);
  const FitPlan plan{X.dim(0), options.batch_size, options.accumulate, options.drop_last, options.shuffle, options.key.bits()};
  FitProgress at;
  if (options.resume && holds_checkpoint(options.checkpoint_dir)) {
    distributed::make_whole(t.sharded);
    at = load_fit(options.checkpoint_dir, t.model, t.optimizer, plan, early);
    t.steps_done = at.steps_done;
  }
  t.first_lr = at.first_lr;
  History& history = at.history;
  auto position = [&] {
    return Position{at.epoch + static_cast<double>(at.batch) / static_cast<double>(batches.count()), t.steps_done,
                    validate ? history.val_loss : history.train_loss};
  };
  if (options.accumulate > 1) t.make_accumulators();
  const int64_t left_over = X.dim(0) % options.batch_size;
  if (left_over == 1 && options.batch_size > 1 && !options.drop_last) t.try_forward(X.slice(0, 0, 1).contiguous());

  std::vector<Impl::StepResult> unread;  // read back once an epoch, so that a step never waits for its loss
  auto read_back = [&] {
    for (const Impl::StepResult& s : unread) {
      history.step_losses.push_back(s.loss.item());
      if (s.grad_norm.defined()) history.grad_norms.push_back(s.grad_norm.item());
      history.skipped_steps += s.skipped;
    }
    unread.clear();
  };
  auto checkpoint = [&] {
    if (options.checkpoint_dir.empty()) return;
    read_back();
    at.steps_done = t.steps_done;
    at.first_lr = t.first_lr;
    t.on_first_rank([&] { save_fit(options.checkpoint_dir, t.model, t.optimizer, plan, at, early); });
  };
  auto is_due = [&] {
    auto updates = static_cast<int64_t>(history.step_losses.size() + unread.size());
    return options.checkpoint_every > 0 && updates % options.checkpoint_every == 0;
  };

  BatchStream stream({batches, options.shuffle ? std::optional(options.key) : std::nullopt},
                     at.epoch * batches.count() + at.batch, options.epochs * batches.count(), options.prefetch);
  bool stop = early.exhausted();
  while (at.epoch < options.epochs && !stop) {
    history.stopped_epoch = at.epoch;
    if (at.batch == 0) at.first_step_of_epoch = history.step_losses.size();
    while (at.batch < batches.count() && !stop) {
      t.set_rate(position());
      if (at.batch == 0) history.lr.push_back(t.optimizer.lr());
      const int64_t first = at.batch, count = std::min(options.accumulate, batches.count() - first);
      if (options.accumulate == 1) {
        auto [batch_x, batch_y] = stream.next();
        unread.push_back(t.step(batch_x, batch_y));
      } else {
        unread.push_back(t.step(stream, count));
      }
      at.batch += count;
      const Impl::StepResult& s = unread.back();
      if (options.on_step)
        stop = options.on_step({at.epoch, first, batches.count(), t.steps_done, samples_in(batches, first, count), s.loss,
                                s.grad_norm, s.skipped}) == Then::stop;
      if (at.batch < batches.count() && (stop || is_due())) checkpoint();
    }
    read_back();
    if (at.batch < batches.count()) {  // stopped within the epoch
      history.lr.pop_back();
      break;
    }
    history.train_loss.push_back(epoch_loss(batches, at, options.accumulate));
    EpochInfo info{at.epoch, history.train_loss.back(), {}, history.lr.back()};
    if (validate) {
      info.val_loss = evaluate(options.X_val, options.y_val, options.batch_size);
      history.val_loss.push_back(*info.val_loss);
      early.after_epoch(at.epoch, *info.val_loss);
      history.best_epoch = early.best_epoch();
    }
    if (options.verbose)
      note("epoch {}: train loss {:.6g}{}, lr {:.6g}", at.epoch, info.train_loss,
           info.val_loss ? fmt::format(", validation loss {:.6g}", *info.val_loss) : "", info.lr);
    if (options.on_epoch && options.on_epoch(info) == Then::stop) stop = true;
    stop = stop || early.exhausted();
    ++at.epoch, at.batch = 0;
    checkpoint();
  }
  return history;
}

}  // namespace ws
