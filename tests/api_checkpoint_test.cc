// Saving and going on: the bits of a run that never stopped.
#include <filesystem>
#include <functional>

#include "api_util.h"

namespace ws::testing {
namespace {

/// A folder that is not there; in memory where there is such a place, since each checkpoint is flushed.
std::string fresh(const std::string& name) {
  std::string place = std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : ::testing::TempDir();
  std::string folder = place + "/wholestep-test-" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

/// Dropout's keys, BatchNorm's statistics and AdamW's counters all have to come back.
struct Net : Module {
  Linear hidden{*this, "hidden", 3, 16};
  BatchNorm norm{*this, "norm", 16};
  Dropout drop{*this, "drop", 0.1};
  Linear out{*this, "out", 16, 1};
  explicit Net() : Module(Key(5)) {}
  Tensor forward(const Tensor& x) const override { return out(drop(relu(norm(hidden(x))))); }
};

struct Result {
  History history;
  std::string bytes;
};

/// A fit in a model, optimizer and trainer of its own.
Result fit(bool compile, const std::function<void(FitOptions&)>& change) {
  Net model;
  AdamW optimizer(model.parameters(), {.lr = 0.01});
  Trainer trainer(model, MSE(), optimizer,
                  {.compile = compile, .schedule = CosineWarmRestarts{.lr_max = 0.01, .t0 = 3}, .record_grad_norm = true});
  FitOptions options{.epochs = 3, .batch_size = 2, .key = Key(9)};
  change(options);
  Tensor X = random_floats({8, 3}, 1), y = random_floats({8, 1}, 2);
  if (options.batch_size == 3) X = random_floats({7, 3}, 1).slice(0, 0, 6).contiguous(), y = random_floats({6, 1}, 2);
  Result r;
  r.history = trainer.fit(X, y, options);
  r.bytes = bytes(model) + bytes(optimizer);
  return r;
}

void expect_same(const Result& got, const Result& right) {
  EXPECT_EQ(got.history.step_losses, right.history.step_losses);
  EXPECT_EQ(got.history.train_loss, right.history.train_loss);
  EXPECT_EQ(got.history.val_loss, right.history.val_loss);
  EXPECT_EQ(got.history.lr, right.history.lr);
  EXPECT_EQ(got.history.grad_norms, right.history.grad_norms);
  EXPECT_EQ(got.history.best_epoch, right.history.best_epoch);
  EXPECT_EQ(got.history.stopped_epoch, right.history.stopped_epoch);
  EXPECT_TRUE(got.bytes == right.bytes) << "weights or optimizer differ";
}

// Stops after every possible update, goes on, and must end as the run that never stopped.
void check_resume(bool compile, const std::string& name, const std::function<void(FitOptions&)>& change) {
  Result whole = fit(compile, change);
  auto updates = static_cast<int64_t>(whole.history.step_losses.size());
  for (int64_t cut = 1; cut < updates; ++cut) {
    SCOPED_TRACE(name + ", cut after update " + std::to_string(cut) + (compile ? ", compiled" : ", loop"));
    std::string folder = fresh("resume_" + name);
    Result first = fit(compile, [&](FitOptions& o) {
      change(o);
      o.checkpoint_dir = folder;
      o.on_step = [&](const StepInfo& s) { return s.step == cut ? Then::stop : Then::go_on; };
    });
    EXPECT_EQ(static_cast<int64_t>(first.history.step_losses.size()), cut);
    Result rest = fit(compile, [&](FitOptions& o) {
      change(o);
      o.checkpoint_dir = folder;
      o.resume = true;
    });
    expect_same(rest, whole);
  }
}

class Checkpoints : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const char* name : {"resume_plain", "resume_all", "resume_every", "resume_other", "tied"}) fresh(name);
  }
};

TEST_F(Checkpoints, ResumedMidEpochC40) {
  for (bool compile : {false, true}) check_resume(compile, "plain", [](FitOptions&) {});
}

TEST_F(Checkpoints, ResumedWithAccumulationValidationAndPatience) {
  auto change = [](FitOptions& o) {
    o.epochs = 4;
    o.accumulate = 3;
    o.X_val = random_floats({4, 3}, 3), o.y_val = random_floats({4, 1}, 4);
    o.patience = 2;
  };
  for (bool compile : {false, true}) check_resume(compile, "all", change);
}

// 7 samples in batches of 2, as the case has it: without BatchNorm, which refuses the last batch of one.
TEST_F(Checkpoints, ResumedByNumberOfUpdatesC40a) {
  auto run = [](const std::string& folder, int64_t every, bool resume, int64_t stop_at) {
    Sequential model(Key(1), {layer<Linear>(3, 8), layer<Dropout>(0.1), layer<Linear>(8, 1)});
    AdamW optimizer(model.parameters(), {.lr = 0.01});
    Trainer trainer(model, MSE(), optimizer, {.compile = true, .schedule = WarmupCosine{.peak = 0.01, .warmup = 2, .total = 12}});
    FitOptions options{.epochs = 3, .batch_size = 2, .checkpoint_dir = folder, .checkpoint_every = every, .resume = resume};
    // An error stops the fit without a checkpoint of its own: what is left is the one of `every`.
    options.on_step = [&](const StepInfo& s) {
      if (s.step == stop_at) throw std::runtime_error("power cut");
    };
    Result r;
    r.history = trainer.fit(random_floats({7, 3}, 1), random_floats({7, 1}, 2), options);
    r.bytes = bytes(model) + bytes(optimizer);
    return r;
  };
  Result whole = run("", 0, false, -1);
  EXPECT_EQ(whole.history.step_losses.size(), 12u);
  std::string folder = fresh("resume_every");
  EXPECT_THROW(run(folder, 3, false, 8), std::runtime_error);
  expect_same(run(folder, 3, true, -1), whole);
  expect_same(run(folder, 3, true, -1), whole);  // nothing is left to do
}

TEST_F(Checkpoints, OtherSizesAreRefusedByName) {
  std::string folder = fresh("resume_other");
  fit(false, [&](FitOptions& o) { o.checkpoint_dir = folder; });
  auto refused = [&](const std::function<void(FitOptions&)>& change) {
    return error_of([&] {
      fit(false, [&](FitOptions& o) {
        o.checkpoint_dir = folder, o.resume = true;
        change(o);
      });
    });
  };
  EXPECT_TRUE(mentions(refused([](FitOptions& o) { o.batch_size = 4; }), {"batch_size 2", "this fit has 4"}));
  EXPECT_TRUE(mentions(refused([](FitOptions& o) { o.batch_size = 3; }), {"samples 8", "this fit has 6"}));
  EXPECT_TRUE(mentions(refused([](FitOptions& o) { o.key = Key(1); }), {"key 9", "this fit has 1"}));
  EXPECT_TRUE(mentions(refused([](FitOptions& o) { o.shuffle = false; }), {"shuffle true", "this fit has false"}));
  EXPECT_TRUE(mentions(error_of([&] {
                         Net model;
                         Trainer trainer(model, MSE(), SGD({.lr = 0.1}));
                         trainer.load(folder);
                       }),
                       {"optimizer.safetensors", "lacks"}));
  EXPECT_TRUE(mentions(error_of([&] { fit(false, [](FitOptions& o) { o.resume = true; }); }), {"checkpoint_dir"}));
}

TEST_F(Checkpoints, TiedWeightsStayTiedC33d) {
  auto loss_of = [](const Module& m) { return m.find("w").value().sum() * 5.0; };  // 2w + 3w
  std::string folder = fresh("tied");
  struct Tied : Module {
    Parameter w{*this, "w", {1}, init::zeros()};
    Tied() : Module(Key(0)) { tie_parameter("again", w); }
    Tensor forward(const Tensor& x) const override { return x * w.value() * 2.0 + x * w.value() * 3.0; }
  };
  auto train = [&](bool load) {
    Tied model;
    model.w.set(floats({1}));
    Trainer trainer(model, [](const Tensor& p, const Tensor&) { return p.sum(); }, SGD({.lr = 0.1}), {.compile = true});
    if (load) trainer.load(folder);
    trainer.train_step(floats({1}), floats({0}));
    if (!load) trainer.save(folder);
    EXPECT_EQ(model.parameters().size(), 1u);
    EXPECT_EQ(trainer.steps_done(), load ? 2 : 1);
    return loss_of(model).item() / 5;
  };
  EXPECT_NEAR(train(false), 0.5, 1e-6);
  EXPECT_NEAR(train(true), 0.0, 1e-6);
}

TEST_F(Checkpoints, CallbacksStop) {
  Result epochs =
      fit(true, [](FitOptions& o) { o.on_epoch = [](const EpochInfo& e) { return e.epoch == 1 ? Then::stop : Then::go_on; }; });
  EXPECT_EQ(epochs.history.train_loss.size(), 2u);
  EXPECT_EQ(epochs.history.stopped_epoch, 1);
  Result steps =
      fit(true, [](FitOptions& o) { o.on_step = [](const StepInfo& s) { return s.step == 6 ? Then::stop : Then::go_on; }; });
  EXPECT_EQ(steps.history.step_losses.size(), 6u);
  EXPECT_EQ(steps.history.train_loss.size(), 1u);
  EXPECT_EQ(steps.history.lr.size(), 1u);
}

}  // namespace
}  // namespace ws::testing
