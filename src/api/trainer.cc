#include "wholestep/trainer.h"

#include "api/batches.h"
#include "api/trainer_impl.h"
#include "api/training_state.h"
#include "io/checkpoint.h"
#include "support/error.h"
#include "support/json.h"
#include "wholestep/distributed.h"

namespace ws {

Trainer::Trainer(Module& model, Forward forward, Loss loss, Kept optimizer, const TrainerOptions& options)
    : impl_(std::make_unique<Impl>(model, std::move(forward), std::move(loss), std::move(optimizer), options)) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;

double Trainer::evaluate(const Tensor& X, const Tensor& y, int64_t batch_size) {
  if (!y.defined()) fail("evaluate: y is undefined");
  if (batch_size < 1) fail("evaluate: batch_size is {}, but must be at least 1", batch_size);
  auto num_samples = static_cast<double>(check_samples(X, y, "evaluate"));
  ModeScope mode(impl_->model, false);
  Batches batches(X, y, batch_size, false);
  std::vector<Tensor> losses;
  for (int64_t b = 0; b < batches.count(); ++b) {
    auto [batch_x, batch_y] = batches[b];
    losses.push_back(impl_->evaluate_batch(batch_x, batch_y));
  }
  double sum = 0;
  for (size_t b = 0; b < losses.size(); ++b)
    sum += static_cast<double>(batches.num_samples(static_cast<int64_t>(b))) * losses[b].item();
  return sum / num_samples;
}

Tensor Trainer::predict(const Tensor& X, int64_t batch_size) {
  if (batch_size < 1) fail("predict: batch_size is {}, but must be at least 1", batch_size);
  check_samples(X, Tensor(), "predict");
  ModeScope mode(impl_->model, false);
  NoGrad no_grad;
  Batches batches(X, Tensor(), batch_size, false);
  std::vector<Tensor> parts;
  for (int64_t b = 0; b < batches.count(); ++b) parts.push_back(impl_->evaluate_batch(batches[b].first, Tensor()));
  return parts.size() == 1 ? parts[0] : concatenate(parts, 0);
}

Tensor Trainer::train_step(const Tensor& x, const Tensor& y) {
  ModeScope mode(impl_->model, true);
  return impl_->step(x, y).loss;
}

void Trainer::save(const std::string& folder) const {
  impl_->on_first_rank([&] {
    save_checkpoint(folder, {{{"written_by", "trainer"}},
                             {{"step", impl_->steps_done}},
                             model_state(impl_->model),
                             optimizer_state(impl_->optimizer)});
  });
}

void Trainer::load(const std::string& folder) {
  int64_t step = json_get<int64_t>(load_checkpoint_state(folder), "step", folder + "/state.json");
  distributed::make_whole(impl_->sharded);
  load_checkpoint_variables(folder, model_state(impl_->model), optimizer_state(impl_->optimizer));
  impl_->steps_done = step;
}

void Trainer::prepare(const Tensor& x, const Tensor& y) {
  if (!impl_->options.compile) return;
  ModeScope mode(impl_->model, true);
  Impl::Precision precision(impl_->options);
  const Tensor inputs[] = {x, y};
  impl_->program_of(Impl::Part::update).prepare(inputs);
}

Optimizer& Trainer::optimizer() { return impl_->optimizer; }
void Trainer::reset_optimizer() { impl_->optimizer.reset(); }
int64_t Trainer::steps_done() const { return impl_->steps_done; }

Compiled& Trainer::compiled_step() {
  if (!impl_->options.compile) fail("trainer: there is no compiled step; construct it with compile = true");
  for (auto part : {Impl::Part::update, Impl::Part::finish})
    if (auto& program = impl_->programs[static_cast<size_t>(part)]) return *program;
  fail("trainer: the step is compiled at the first batch; run one first");
}

}  // namespace ws
