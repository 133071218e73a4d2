#include "choices.h"

#include <algorithm>
#include <utility>

#include "backend/backend.h"
#include "support/error.h"
#include "support/log.h"

namespace ws::cli {

void add_mode_option(CLI::App* command, std::string& word) { command->add_option("--mode", word, "loop or compiled"); }

bool is_compiled(const std::string& mode) {
  if (mode != "loop" && mode != "compiled") fail("--mode must be loop or compiled, not '{}'", mode);
  return mode == "compiled";
}

double default_lr(const std::string& optimizer, double otherwise) { return optimizer == "muon" ? MuonOptions().lr : otherwise; }

std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& o, double default_lr, double default_weight_decay) {
  double lr = o.lr.value_or(ws::cli::default_lr(o.name, default_lr));
  if (!(lr >= 0)) fail("--lr must not be negative, it is {}", lr);
  if (o.weight_decay && !(*o.weight_decay >= 0)) fail("the weight decay must not be negative, it is {}", *o.weight_decay);
  if (o.name == "sgd") return std::make_unique<SGD>(SGDOptions{.lr = lr});
  if (o.name == "momentum") return std::make_unique<SGD>(SGDOptions{.lr = lr, .momentum = 0.9});
  if (o.name == "nesterov") return std::make_unique<SGD>(SGDOptions{.lr = lr, .momentum = 0.9, .nesterov = true});
  if (o.name == "adam") return std::make_unique<Adam>(AdamOptions{.lr = lr});
  if (o.name == "adamw")
    return std::make_unique<AdamW>(AdamWOptions{.lr = lr, .weight_decay = o.weight_decay.value_or(default_weight_decay)});
  if (o.name == "muon") {
    const MuonOptions standard;
    const double decay = o.weight_decay.value_or(default_weight_decay);
    const AdamWOptions rest{.lr = lr * (standard.rest.lr / standard.lr), .weight_decay = decay};
    return std::make_unique<Muon>(MuonOptions{.lr = lr, .weight_decay = decay, .rest = rest});
  }
  if (o.name == "rmsprop") return std::make_unique<RMSProp>(RMSPropOptions{.lr = lr});
  if (o.name == "adagrad") return std::make_unique<AdaGrad>(AdaGradOptions{.lr = lr});
  fail("unknown optimizer '{}': known ones are sgd, momentum, nesterov, adam, adamw, muon, rmsprop, adagrad", o.name);
}

Schedule make_schedule(const std::string& name, double lr, int64_t steps, double epochs) {
  if (name.empty()) return {};
  if (name == "constant") return ConstantLR{lr};
  if (name == "step") return StepLR{.lr = lr, .step = std::max(epochs / 3, 1e-9), .gamma = 0.5};
  if (name == "cosine") return CosineWarmRestarts{.lr_max = lr, .lr_min = 0, .t0 = std::max(epochs, 1e-9)};
  if (name == "warmup") return LinearWarmup{.lr_start = 0, .lr_end = lr, .warmup = std::max(epochs / 10, 1e-9)};
  if (name == "warmup_cosine") return WarmupCosine{.peak = lr, .warmup = steps / 10, .total = std::max<int64_t>(steps, 1)};
  fail("unknown schedule '{}': known ones are constant, step, cosine, warmup, warmup_cosine", name);
}

DType dtype_named(const std::string& word) {
  if (word == "fp32") return DType::f32;
  if (word == "bf16") return DType::bf16;
  fail("--dtype must be fp32 or bf16, not '{}'", word);
}

DType compute_dtype_of(const std::string& word) {
  const DType dtype = dtype_named(word);
  static bool said = false;
  const std::string isa = cpu_backend().name();
  const bool native = isa.find("bf16") != std::string::npos || isa.find("amx") != std::string::npos;
  if (dtype == DType::bf16 && !native && !std::exchange(said, true))
    note("bf16 emulated: storage saving only (this machine's products run in fp32)");
  return dtype;
}

void add_dtype_option(CLI::App* command, std::string& word) {
  command->add_option("--dtype", word, "fp32, or bf16: products and stored activations in bf16, parameters in fp32");
}

MatmulPrecision matmul_precision_of(const std::string& word) {
  const MatmulPrecision precision = matmul_precision_from_name(word);
  static bool said = false;
  const std::string isa = cpu_backend().name();
  const bool fast =
      isa.find("amx") != std::string::npos || (precision == MatmulPrecision::bf16 && isa.find("bf16") != std::string::npos);
  if (precision != MatmulPrecision::highest && !fast && !std::exchange(said, true))
    note("--matmul-precision {}: right, but not faster than highest on this machine ({})", word, isa);
  return precision;
}

void add_precision_option(CLI::App* command, std::string& word) {
  command->add_option("--matmul-precision", word,
                      "of fp32 products: highest (fp32), high (three bf16 products, about 5e-6 relative, for AMX) or bf16");
}

}  // namespace ws::cli
