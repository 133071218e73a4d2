// The generated matrix: every optimizer x decay x clipping x schedule, and every layer in a model of its own, in fp32 and bf16,
// compiled on 1, 2 and 4 threads against the loop, bit for bit.
#include <functional>
#include <memory>

#include "api_util.h"
#include "support/log.h"

namespace ws::testing {
namespace {

/// Quiet while it lives: hundreds of programs are compiled on purpose.
class Matrix : public ::testing::Test {
 protected:
  void SetUp() override {
    set_note_sink([](std::string_view) {});
  }
  void TearDown() override { set_note_sink({}); }
};

std::string bytes_of(const std::vector<double>& list) {
  return {reinterpret_cast<const char*>(list.data()), list.size() * sizeof(double)};
}
std::string everything(const Module& model, const Trainer& trainer, const Optimizer& optimizer, const History& h) {
  return bytes(model) + bytes(optimizer) + bytes_of(h.train_loss) + bytes_of(h.val_loss) + bytes_of(h.lr) +
         bytes_of(h.step_losses) + bytes_of(h.grad_norms) + std::to_string(trainer.steps_done());
}

template <class T>
using Named = std::vector<std::pair<const char*, T>>;

TEST_F(Matrix, OptimizerDecayClipSchedule) {
  using Make = std::function<std::unique_ptr<Optimizer>()>;
  const Named<Make> optimizers = {
      {"sgd", [] { return std::make_unique<SGD>(SGDOptions{.lr = 0.05}); }},
      {"momentum", [] { return std::make_unique<SGD>(SGDOptions{.lr = 0.02, .momentum = 0.9}); }},
      {"nesterov", [] { return std::make_unique<SGD>(SGDOptions{.lr = 0.02, .momentum = 0.9, .nesterov = true}); }},
      {"velocity", [] { return std::make_unique<SGD>(SGDOptions{.lr = 0.02, .momentum = 0.9, .lr_in_velocity = true}); }},
      {"adam", [] { return std::make_unique<Adam>(AdamOptions{.lr = 0.01}); }},
      {"adamw", [] { return std::make_unique<AdamW>(AdamWOptions{.lr = 0.01, .weight_decay = 0.1}); }},
      {"rmsprop", [] { return std::make_unique<RMSProp>(RMSPropOptions{.lr = 0.01}); }},
      {"rmsprop outside", [] { return std::make_unique<RMSProp>(RMSPropOptions{.lr = 0.01, .eps_inside_root = false}); }},
      {"adagrad", [] { return std::make_unique<AdaGrad>(AdaGradOptions{.lr = 0.05}); }},
      {"muon", [] { return std::make_unique<Muon>(MuonOptions{.lr = 0.02, .weight_decay = 0.1}); }}};
  const Named<std::function<void(TrainerOptions&)>> decays = {
      {"no decay", [](TrainerOptions&) {}},
      {"l2", [](TrainerOptions& o) { o.weight_decay = 0.01; }},
      {"decoupled", [](TrainerOptions& o) { o.weight_decay = 0.01, o.decay = Decay::decoupled; }}};
  const Named<std::function<void(TrainerOptions&)>> clips = {{"no clipping", [](TrainerOptions&) {}},
                                                             {"norm", [](TrainerOptions& o) { o.clip_norm = 0.3; }},
                                                             {"value", [](TrainerOptions& o) { o.clip_value = 0.02; }}};
  const Named<Schedule> schedules = {{"no schedule", {}},
                                     {"constant", ConstantLR{0.01}},
                                     {"step", StepLR{0.02, 1, 0.5}},
                                     {"cosine", CosineWarmRestarts{.lr_max = 0.02, .t0 = 1}},
                                     {"linear warm-up", LinearWarmup{0, 0.01, 1}},
                                     {"noam", Noam{.width = 64, .warmup = 1, .scale = 0.1}},
                                     {"exponential", ExponentialLR{0.02, 0.9}},
                                     {"polynomial", PolynomialLR{0.02, 0.001, 6, 2}},
                                     {"one cycle", OneCycle{.peak = 0.02, .total = 6}},
                                     {"warm-up cosine", WarmupCosine{.peak = 0.02, .warmup = 2, .total = 6}},
                                     {"plateau", ReduceOnPlateau{.lr = 0.02, .factor = 0.5, .patience = 1}},
                                     {"user", [](const Position& at) { return 0.01 / (1 + at.epoch); }}};
  Tensor X = random_floats({10, 3}, 1), y = random_floats({10, 2}, 2);
  for (const auto& [optimizer_name, make] : optimizers)
    for (const auto& [decay_name, set_decay] : decays)
      for (const auto& [clip_name, set_clip] : clips)
        for (const auto& [schedule_name, schedule] : schedules) {
          auto run = [&, &make = make, &set_decay = set_decay, &set_clip = set_clip, &schedule = schedule](bool compile,
                                                                                                           int threads) {
            auto model = models::mlp({3, 5, 2}, Key(0));
            auto optimizer = make();
            TrainerOptions options{.compile = compile, .schedule = schedule, .num_threads = threads, .record_grad_norm = true};
            set_decay(options);
            set_clip(options);
            Trainer trainer(model, MSE(), *optimizer, options);
            return everything(model, trainer, *optimizer, trainer.fit(X, y, {.epochs = 2, .batch_size = 4}));
          };
          std::string loop = run(false, 1);
          for (int threads : {1, 2, 4})
            ASSERT_TRUE(run(true, threads) == loop)
                << optimizer_name << ", " << decay_name << ", " << clip_name << ", " << schedule_name << ", threads " << threads;
        }
}

struct LayerCase {
  const char* name;
  Tensor X;
  std::vector<LayerFactory> layers;
};

std::vector<LayerCase> layer_cases() {
  Tensor rows = random_floats({10, 8}, 1), sequence = random_floats({10, 6, 8}, 2), image = random_floats({10, 6, 7, 4}, 3);
  Tensor ids = random_ints({10, 6}, 11, 4);
  Rope interleaved(6, 4), half(6, 4, RopePairs::half_split);
  auto attention = layer<SelfAttention>(8, 2, SelfAttentionOptions{.causal = true, .bias = true});
  auto feed_forward = layer<FeedForward>(8, 12, FeedForwardOptions{});
  std::vector<LayerCase> cases = {
      {"linear", rows, {layer<Linear>(8, 5)}},
      {"linear without bias", sequence, {layer<Linear>(8, 5, LinearOptions{.bias = false})}},
      {"embedding", ids, {layer<Embedding>(11, 8)}},
      {"layer norm", sequence, {layer<LayerNorm>(8)}},
      {"rms norm", sequence, {layer<RMSNorm>(8)}},
      {"batch norm", rows, {layer<BatchNorm>(8)}},
      {"batch norm of images", image, {layer<BatchNorm>(4)}},
      {"group norm", image, {layer<GroupNorm>(2, 4)}},
      {"instance norm", image, {layer<InstanceNorm>(4, 1e-5, true)}},
      {"dropout", rows, {layer<Linear>(8, 8), layer<Dropout>(0.4)}},
      {"attention", sequence, {layer<SelfAttention>(8, 2)}},
      {"causal attention", sequence, {attention}},
      {"rope", sequence, {layer<SelfAttention>(8, 2, SelfAttentionOptions{.rope = interleaved})}},
      {"half-split rope", sequence, {layer<SelfAttention>(8, 2, SelfAttentionOptions{.causal = true, .rope = half})}},
      {"feed-forward", sequence, {feed_forward}},
      {"gated", sequence, {layer<FeedForward>(8, 12, FeedForwardOptions{.activation = Activation::silu, .gated = true})}},
      {"pre-norm block", sequence, {layer<TransformerBlock>(attention, feed_forward, norm_layer(NormKind::rms, 8, 1e-6), true)}},
      {"post-norm block",
       sequence,
       {layer<TransformerBlock>(attention, feed_forward, norm_layer(NormKind::layer, 8, 1e-5), false)}},
      {"sinusoidal positions", sequence, {layer<SinusoidalPositions>(6, 8)}},
      {"learned positions", sequence, {layer<LearnedPositions>(9, 8)}},
      {"mean over time", sequence, {layer<MeanOverTime>()}},
      {"residual", rows, {layer<Residual>(layer<Linear>(8, 8))}},
      {"nested", rows, {layer<Sequential>(std::vector<LayerFactory>{layer<Linear>(8, 4), layer<Tanh>()})}},
      {"conv 1d", sequence, {layer<Conv1D>(8, 3, 3, ConvOptions{.stride = 2, .padding = 1})}},
      {"conv 2d", image, {layer<Conv2D>(4, 3, 3)}},
      {"strided conv 2d", image, {layer<Conv2D>(4, 3, 2, ConvOptions{.stride = 2, .padding = 1, .bias = false})}},
      {"dilated conv 1d", sequence, {layer<Conv1D>(8, 3, 2, ConvOptions{.padding = 1, .dilation = 3})}},
      {"grouped conv 2d", image, {layer<Conv2D>(4, 6, 3, ConvOptions{.padding = 1, .groups = 2})}},
      {"depthwise conv 2d", image, {layer<Conv2D>(4, 4, 3, ConvOptions{.stride = 2, .padding = 1, .groups = 4})}},
      {"padded max pool", image, {layer<Conv2D>(4, 3, 1), layer<MaxPool>(3, 2, 1)}},
      {"padded average pool", image, {layer<Conv2D>(4, 3, 1), layer<AveragePool>(2, 1, 1)}},
      {"pre-norm block with dropout",
       sequence,
       {layer<TransformerBlock>(attention, feed_forward, norm_layer(NormKind::rms, 8, 1e-6), true, 0.2)}},
      {"post-norm block with dropout",
       sequence,
       {layer<TransformerBlock>(attention, feed_forward, norm_layer(NormKind::layer, 8, 1e-5), false, 0.2)}},
      {"max pool", image, {layer<Conv2D>(4, 3, 1), layer<MaxPool>(2)}},
      {"average pool", sequence, {layer<Linear>(8, 3), layer<AveragePool>(3, 1)}},
      {"leaky relu", rows, {layer<Linear>(8, 8), layer<LeakyReLU>()}},
      {"softplus", rows, {layer<Linear>(8, 8), layer<Softplus>()}},
      {"a small convolutional net",
       image,
       {layer<Conv2D>(4, 6, 3, ConvOptions{.padding = 1}), layer<BatchNorm>(6), layer<ReLU>(), layer<MaxPool>(2),
        layer<Flatten>(), layer<Dropout>(0.3), layer<Linear>(54, 5)}}};
  const Named<LayerFactory> activations = {{"relu", layer<ReLU>()},          {"tanh", layer<Tanh>()},
                                           {"sigmoid", layer<Sigmoid>()},    {"gelu", layer<GELU>()},
                                           {"gelu tanh", layer<GELUTanh>()}, {"silu", layer<SiLU>()}};
  for (const auto& [name, activation] : activations) cases.push_back({name, rows, {layer<Linear>(8, 8), activation}});
  return cases;
}

class EveryLayer : public Matrix, public ::testing::WithParamInterface<DType> {};
INSTANTIATE_TEST_SUITE_P(ComputeDTypes, EveryLayer, ::testing::Values(DType::f32, DType::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(EveryLayer, CompiledIsTheLoop) {
  Tensor y = random_floats({10, 3}, 9);
  for (LayerCase& c : layer_cases()) {
    int64_t features = 0;
    {
      NoGrad no_grad;
      features = Sequential(Key(0), c.layers)(c.X).size() / 10;
    }
    std::vector<LayerFactory> layers = c.layers;
    layers.push_back(layer<Flatten>());
    layers.push_back(layer<Linear>(features, 3));
    auto run = [&](bool compile, int threads) {
      Sequential model(Key(1), layers);
      Adam optimizer(model.parameters(), {.lr = 0.01});
      Trainer trainer(model, MSE(), optimizer,
                      {.compile = compile, .clip_norm = 1, .num_threads = threads, .compute_dtype = GetParam()});
      History h = trainer.fit(c.X, y, {.epochs = 2, .batch_size = 4, .X_val = c.X, .y_val = y});
      EXPECT_LT(h.train_loss[1], 10) << c.name;
      for (const Variable& p : model.parameters()) EXPECT_EQ(p.value().dtype(), DType::f32) << c.name << " " << p.name();
      return everything(model, trainer, optimizer, h) + bytes(trainer.predict(c.X));
    };
    std::string loop = run(false, 1);
    for (int threads : {1, 2, 4}) EXPECT_TRUE(run(true, threads) == loop) << c.name << ", threads " << threads;
  }
}

// One weight used twice, one frozen, one that the loss does not read.
TEST_F(Matrix, TiedFrozenUnused) {
  struct Net : Module {
    Linear first{*this, "first", 8, 8}, frozen{*this, "frozen", 8, 8}, unused{*this, "unused", 8, 8}, last{*this, "last", 8, 3};
    Net() : Module(Key(0)) {
      tie_parameter("again", first.weight);
      frozen.set_trainable(false);
    }
    Tensor forward(const Tensor& x) const override {
      return last(matmul(tanh(frozen(tanh(first(x)))), first.weight, false, true));
    }
  };
  Tensor X = random_floats({10, 8}, 1), y = random_floats({10, 3}, 2);
  auto run = [&](bool compile, int threads) {
    Net model;
    std::string before = bytes(model.frozen) + bytes(model.unused);
    AdamW optimizer(model.parameters(), {.lr = 0.01, .weight_decay = 0.1});
    Trainer trainer(model, MSE(), optimizer, {.compile = compile, .clip_norm = 1, .weight_decay = 0.01, .num_threads = threads});
    History h = trainer.fit(X, y, {.epochs = 3, .batch_size = 4, .accumulate = 2});
    EXPECT_EQ(bytes(model.frozen) + bytes(model.unused), before);
    return everything(model, trainer, optimizer, h);
  };
  std::string loop = run(false, 1);
  for (int threads : {1, 2, 4}) EXPECT_TRUE(run(true, threads) == loop) << threads;
}

}  // namespace
}  // namespace ws::testing
