// What several commands are given by a word: --mode, --optimizer, --schedule, --dtype, --matmul-precision.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "wholestep/wholestep.h"

namespace ws::cli {

/// --mode of a command.
void add_mode_option(CLI::App* command, std::string& word);
/// Whether it is compiled, not loop; other words are an Error.
bool is_compiled(const std::string& mode);

struct OptimizerOptions {
  std::string name;  // sgd momentum nesterov adam adamw muon rmsprop adagrad
  std::optional<double> lr = {}, weight_decay = {};
};
/// The rate without --lr: Muon has one of its own, whatever suits the model otherwise.
double default_lr(const std::string& optimizer, double otherwise);
/// An Error lists the known names. A rate for Muon is that of its matrices; the rest's is kept in its usual proportion to it.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options, double default_lr, double default_weight_decay);

/// constant, step, cosine, warmup, warmup_cosine over `steps` steps and `epochs` epochs at peak rate lr; "" is none.
Schedule make_schedule(const std::string& name, double lr, int64_t steps, double epochs);

/// fp32 or bf16; other words are an Error.
DType dtype_named(const std::string& word);
/// The same, to compute in: says once where this machine has no bf16 arithmetic.
DType compute_dtype_of(const std::string& word);
/// --dtype of a command.
void add_dtype_option(CLI::App* command, std::string& word);
/// highest, high or bf16; other words are an Error. Says once where this machine gains nothing by it.
MatmulPrecision matmul_precision_of(const std::string& word);
/// --matmul-precision of a command.
void add_precision_option(CLI::App* command, std::string& word);

}  // namespace ws::cli
