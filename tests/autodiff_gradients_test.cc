// Gradients of every differentiable op against finite differences in double, through the interpreter.
#include <gtest/gtest.h>

#include <cmath>

#include "autodiff/autodiff.h"
#include "autodiff_util.h"
#include "ops_examples.h"

namespace ws {
namespace {

constexpr double kStep = 1e-5;

// The loss of an example: every floating result (others cast to f32) times fixed random weights, summed.
class Example {
 public:
  Example(const OpDef& op, const test::OpExample& example) : builder_(graph) {
    for (size_t i = 0; i < example.inputs.size(); ++i)
      inputs.push_back(graph.add_input(fmt::format("x{}", i), example.inputs[i]));
    const std::vector<Value> results = builder_.apply(op, inputs, example.attrs);
    for (size_t i = 0; i < results.size(); ++i)
      if (example.grad_results.empty() ||
          std::count(example.grad_results.begin(), example.grad_results.end(), static_cast<int>(i)) != 0)
        add_to_loss(results[i]);
    graph.add_output(loss_, "loss");
  }
  // Appends the backward pass; its gradients become outputs 1, 2, ... for the inputs that have one.
  void differentiate() {
    const std::vector<Value> grads = backward(builder_, test::tape_of(graph), loss_, inputs);
    for (size_t i = 0; i < grads.size(); ++i) {
      has_grad.push_back(static_cast<bool>(grads[i]));
      if (grads[i]) graph.add_output(grads[i], fmt::format("grad{}", i));
    }
  }
  RefArray weights_for(const Type& type, size_t which) const {
    RefArray w{type, {}};
    for (int64_t i = 0; i < type.shape.num_elements(); ++i)
      w.data.push_back(0.3 + std::cos(static_cast<double>(i * 7 + static_cast<int64_t>(which) * 3)));
    return w;
  }
  std::vector<RefArray> with_weights(std::vector<RefArray> values) const {
    for (size_t i = 0; i < weights_.size(); ++i) values.push_back(weights_for(graph.type_of(weights_[i]), i));
    return values;
  }

  Graph graph;
  std::vector<Value> inputs;
  std::vector<bool> has_grad;

 private:
  void add_to_loss(Value result) {
    if (const DType d = graph.type_of(result).dtype; !is_floating(d) || d == DType::bf16)
      result = builder_.cast(result, DType::f32);
    const Type type = graph.type_of(result);
    const Value w = graph.add_input(fmt::format("w{}", weights_.size()), type);
    weights_.push_back(w);
    std::vector<int64_t> axes;
    for (int i = 0; i < type.shape.rank(); ++i) axes.push_back(i);
    Value part = builder_.reduce_sum(builder_.mul(result, w), axes, false);
    if (loss_ && graph.type_of(loss_).dtype != type.dtype) part = builder_.cast(part, graph.type_of(loss_).dtype);
    loss_ = loss_ ? builder_.add(loss_, part) : part;
  }

  GraphBuilder builder_;
  std::vector<Value> weights_;
  Value loss_;
};

class EveryGradient : public testing::TestWithParam<const OpDef*> {};

std::vector<const OpDef*> differentiable_ops() {
  std::vector<const OpDef*> found;
  for (const OpDef* op : all_ops())
    if (op->differentiable() && op->domain[0].gradient_check) found.push_back(op);
  return found;
}
INSTANTIATE_TEST_SUITE_P(Table, EveryGradient, testing::ValuesIn(differentiable_ops()), test::name_of);

TEST_P(EveryGradient, MatchesFiniteDifferences) {
  const OpDef& op = *GetParam();
  int compared = 0;
  for (const test::OpExample& example : test::examples_of(op)) {
    Example forward(op, example), both(op, example);
    both.differentiate();
    verify(both.graph);
    for (unsigned seed = 0; seed < 3; ++seed) {
      std::vector<RefArray> x = test::draw_inputs(op, example, seed);
      const std::vector<RefArray> out = interpret(both.graph, both.with_weights(x));
      size_t next = 1;
      for (size_t i = 0; i < x.size(); ++i) {
        if (!is_floating(example.inputs[i].dtype)) {
          EXPECT_FALSE(both.has_grad[i]) << "an integer input has no gradient";
          continue;
        }
        const std::vector<double> grad = both.has_grad[i] ? out[next++].data : std::vector<double>(x[i].data.size(), 0.0);
        ASSERT_EQ(grad.size(), x[i].data.size());
        for (size_t k = 0; k < grad.size(); ++k) {
          const double at = x[i].data[k];
          x[i].data[k] = at + kStep;
          const double above = interpret(forward.graph, forward.with_weights(x))[0].data[0];
          x[i].data[k] = at - kStep;
          const double below = interpret(forward.graph, forward.with_weights(x))[0].data[0];
          x[i].data[k] = at;
          const double slope = (above - below) / (2 * kStep);
          EXPECT_NEAR(grad[k], slope, 2e-8 * (1 + std::fabs(slope)))
              << op.name << " input " << i << " element " << k << " of " << example.inputs[i].str();
          ++compared;
        }
      }
    }
  }
  const bool has_floating_input =
      op.arity != 0 && op.name != "random_bits" && op.name != "check_range" && !op.name.starts_with("logical_");
  EXPECT_EQ(compared > 0, has_floating_input) << "no example of " << op.name << " compares any gradient";
}

// Second derivatives: the backward pass is made of ops too.
TEST(Gradients, OfGradients) {
  for (const char* name : {"exp", "log", "log1p", "sin", "cos", "tanh", "erf", "sigmoid", "rsqrt", "sqrt", "square"}) {
    const OpDef& op = *find_op(name);
    Graph g;
    GraphBuilder b(g);
    const Value x = g.add_input("x", {DType::f32, {}});
    const Value y = b.op(name, {x});
    const Value first = backward(b, test::tape_of(g), y, std::vector<Value>{x})[0];
    const Value second = backward(b, test::tape_of(g), first, std::vector<Value>{x})[0];
    ASSERT_TRUE(second) << name;
    g.add_output(first, "first");
    g.add_output(second, "second");
    const auto at = [&](double v) { return interpret(g, std::vector<RefArray>{{{DType::f32, {}}, {v}}}); };
    const double middle = (op.domain[0].low + 2 * op.domain[0].high) / 3;
    const double slope = (at(middle + kStep)[0].data[0] - at(middle - kStep)[0].data[0]) / (2 * kStep);
    EXPECT_NEAR(at(middle)[1].data[0], slope, 1e-7 * (1 + std::fabs(slope))) << name;
  }
}

}  // namespace
}  // namespace ws
