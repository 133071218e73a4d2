// Data parallel training: `mpirun -n 2 ./data_parallel` trains one model on two processes, `./data_parallel` on one.
#include <wholestep/wholestep.h>

#include <cstdio>
#include <vector>

int main() {
  // y = x0 - 2 x1, on points of a grid.
  std::vector<float> points, values;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      points.insert(points.end(), {i / 8.0f - 1, j / 8.0f - 1});
      values.push_back(i / 8.0f - j / 4.0f + 1);
    }
  ws::Tensor X = ws::Tensor::from(points, {256, 2}), Y = ws::Tensor::from(values, {256, 1});

  ws::distributed::Job job;
  auto model = ws::models::mlp({2, 32, 1}, ws::Key(0), ws::Activation::tanh);
  ws::Trainer trainer(model, ws::MSE(), ws::Adam({.lr = 0.01}), {.compile = true, .mesh = job.mesh()});
  ws::History history = trainer.fit(X, Y, {.epochs = 30, .batch_size = 64});
  // On, with each rank keeping its share of the optimizer's moments.
  ws::Trainer sharded(model, ws::MSE(), ws::AdamW({.lr = 1e-3}), {.compile = true, .mesh = job.mesh(), .shard_optimizer = true});
  const ws::History more = sharded.fit(X, Y, {.epochs = 10, .batch_size = 64});
  if (job.rank() == 0)
    std::printf("%d rank%s: loss %.5f -> %.5f\n", job.size(), job.size() == 1 ? "" : "s", history.train_loss.front(),
                more.train_loss.back());
  return more.train_loss.back() < 0.1 * history.train_loss.front() ? 0 : 1;
}
