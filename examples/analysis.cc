// What a compiled step costs, holds and takes: counted, planned, predicted, measured. The program of docs/analysis.md.
#include <wholestep/wholestep.h>

#include <cstdio>
#include <fstream>
#include <vector>

namespace {

struct Block : ws::Module {
  ws::Linear in{*this, "in", 64, 256}, out{*this, "out", 256, 64};
  Block(ws::Module& parent, const std::string& name) : Module(parent, name) {}
  ws::Tensor forward(const ws::Tensor& x) const override { return x + out(ws::gelu(in(x))); }
};

struct Net : ws::Module {
  ws::ModuleList blocks{*this, "blocks"};
  bool checkpointed = false;
  explicit Net(ws::Key key) : Module(key) {
    for (int i = 0; i < 4; ++i) blocks.add<Block>();
  }
  ws::Tensor forward(const ws::Tensor& x) const override {
    ws::Tensor h = x;
    for (const auto& block : blocks) h = checkpointed ? ws::checkpoint(*block, h) : (*block)(h);
    return h;
  }
};

}  // namespace

int main() {
  Net model(ws::Key(0));
  ws::Tensor X = ws::Tensor::ones({512, 64}), Y = ws::Tensor::zeros({512, 64});
  ws::Trainer trainer(model, ws::MSE(), ws::SGD({.lr = 0.01}), {.compile = true});
  trainer.train_step(X, Y);

  ws::Compiled& step = trainer.compiled_step();
  std::printf("%s\n", step.cost_analysis().text().c_str());
  std::printf("%s\n", step.memory_analysis().text().c_str());
  std::ofstream("memory.html") << step.memory_analysis().map_html("four blocks");

  ws::Roofs roofs = ws::machine_roofs();  // measured once a machine, then read from the cache folder
  std::printf("%s", step.predict(roofs).text().c_str());
  const ws::Tensor batch[] = {X, Y};
  ws::Profile profile = step.profile(batch, roofs, 5);
  std::printf("%s\n", profile.text().c_str());
  std::printf("%s\n", step.classify(roofs, profile.seconds).text().c_str());

  long long batch_that_fits = step.largest_batch(batch, 64 << 20);
  std::printf("64 MiB would do for a batch of %lld\n", batch_that_fits);

  // Less memory, the same bits: by hand, or by a budget.
  int64_t peak = step.memory_analysis().peak_bytes;
  Net stored(ws::Key(0)), by_hand(ws::Key(0)), by_budget(ws::Key(0));
  by_hand.checkpointed = true;
  ws::Trainer plain(stored, ws::MSE(), ws::SGD({.lr = 0.01}), {.compile = true});
  ws::Trainer checkpointed(by_hand, ws::MSE(), ws::SGD({.lr = 0.01}), {.compile = true});
  ws::Trainer limited(by_budget, ws::MSE(), ws::SGD({.lr = 0.01}), {.compile = true, .memory_budget_bytes = peak * 8 / 10});
  std::vector<double> losses;
  for (ws::Trainer* t : {&plain, &checkpointed, &limited}) {
    t->train_step(X, Y);
    losses.push_back(t->train_step(X, Y).item());
    std::printf("%s", t->compiled_step().memory_analysis().text().c_str());
  }
  bool same = losses[0] == losses[1] && losses[0] == losses[2];
  std::printf("the losses are %s\n", same ? "equal in every bit" : "DIFFERENT");
  return same ? 0 : 1;
}
