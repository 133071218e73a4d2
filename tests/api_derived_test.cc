// The bf16 copies of parameters that a compiled step keeps, through everything a Trainer does: each is compared with its parameter before
// every call (VERIFY=1), and the results with the loop's.
#include <filesystem>
#include <functional>
#include <limits>

#include "api_util.h"
#include "support/flags.h"
#include "support/log.h"

namespace ws::testing {
namespace {

class DerivedCopies : public ::testing::Test {
 protected:
  void SetUp() override {
    set_note_sink([](std::string_view) {});
  }
  void TearDown() override { set_note_sink({}); }
  FlagScope check_{"verify", "1"};
};

using Make = std::function<std::unique_ptr<Optimizer>()>;

TEST_F(DerivedCopies, EveryOptimizerClippedAndSkipping) {
  const std::vector<std::pair<const char*, Make>> optimizers = {
      {"sgd", [] { return std::make_unique<SGD>(SGDOptions{.lr = 0.05}); }},
      {"nesterov", [] { return std::make_unique<SGD>(SGDOptions{.lr = 0.02, .momentum = 0.9, .nesterov = true}); }},
      {"adam", [] { return std::make_unique<Adam>(AdamOptions{.lr = 0.01}); }},
      {"adamw", [] { return std::make_unique<AdamW>(AdamWOptions{.lr = 0.01, .weight_decay = 0.1}); }},
      {"rmsprop", [] { return std::make_unique<RMSProp>(RMSPropOptions{.lr = 0.01}); }},
      {"adagrad", [] { return std::make_unique<AdaGrad>(AdaGradOptions{.lr = 0.05}); }},
      {"muon", [] { return std::make_unique<Muon>(MuonOptions{.lr = 0.02, .weight_decay = 0.1}); }}};
  Tensor X = random_floats({13, 6}, 1), y = random_floats({13, 5}, 2);
  std::vector<float> broken(static_cast<size_t>(y.size()), 0.5f);
  broken[3] = std::numeric_limits<float>::infinity();
  Tensor bad_y = floats(broken, y.shape());
  for (const auto& [name, make] : optimizers)
    for (const bool clips : {false, true})
      for (const bool skips : {false, true})
        for (const int64_t accumulate : {1, 2}) {
          auto run = [&, &make = make](bool compile, int threads) {
            auto model = models::mlp({6, 40, 40, 5}, Key(0));
            auto optimizer = make();
            TrainerOptions options{.compile = compile, .num_threads = threads, .compute_dtype = DType::bf16};
            if (clips) options.clip_norm = 0.3;
            if (skips) options.on_nonfinite = OnNonFinite::skip;
            options.groups = {{.contains = [](const Variable& v) { return v.name() == "layers.1.weight"; }, .lr_scale = 0}};
            Trainer trainer(model, MSE(), *optimizer, options);
            std::string all;
            const FitOptions fit{.epochs = 2, .batch_size = 5, .accumulate = accumulate};  // the last batch is of 3
            trainer.fit(X, y, fit);
            all += std::to_string(trainer.evaluate(X, y));
            if (skips) trainer.fit(X, bad_y, fit);
            trainer.fit(X, y, fit);
            if (compile && accumulate == 1) {
              EXPECT_GT(trainer.compiled_step().memory_analysis().derived_bytes, 0);
            }
            return all + bytes(trainer.predict(X)) + bytes(model) + bytes(*optimizer);
          };
          const std::string loop = run(false, 1);
          for (int threads : {1, 2})
            ASSERT_TRUE(run(true, threads) == loop) << name << ", clips " << clips << ", skips " << skips << ", accumulates "
                                                    << accumulate << ", threads " << threads;
        }
}

TEST_F(DerivedCopies, LoadedAndAssignedWeights) {
  const std::string folder = ::testing::TempDir() + "/derived_copies";
  Tensor ids = random_ints({6, 8}, 40, 1), targets = random_ints({6, 8}, 40, 2);
  auto run = [&](bool compile, int64_t budget, bool checkpoints = false) {
    auto model = models::gpt({.vocab = 40, .width = 32, .heads = 2, .blocks = 2, .checkpoint = checkpoints}, Key(0));
    AdamW optimizer(model.parameters(), {.lr = 0.01});
    Trainer trainer(model, SoftmaxCrossEntropy(), optimizer,
                    {.compile = compile, .compute_dtype = DType::bf16, .memory_budget_bytes = budget});
    trainer.train_step(ids, targets);
    trainer.save(folder);
    for (int i = 0; i < 3; ++i) trainer.train_step(ids, targets);
    trainer.load(folder);
    trainer.train_step(ids, targets);
    for (Variable p : model.parameters()) p.set(p.value() * 0.9);
    trainer.train_step(ids, targets);
    return bytes(model) + bytes(optimizer) + bytes(trainer.predict(ids));
  };
  const std::string loop = run(false, 0);
  EXPECT_TRUE(run(true, 0) == loop);
  EXPECT_TRUE(run(true, 1'000'000) == loop);
  EXPECT_TRUE(run(true, 0, true) == loop);
  EXPECT_TRUE(run(true, 0, true) == loop);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ws::testing
