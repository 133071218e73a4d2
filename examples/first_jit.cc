// A hand-written training step, as the loop and as one compiled call: the same function, the same bits.
#include <wholestep/wholestep.h>

#include <cstdio>
#include <vector>

namespace {

struct Net : ws::Module {
  ws::Linear hidden{*this, "hidden", 2, 32};
  ws::Linear out{*this, "out", 32, 2};
  explicit Net(ws::Key key) : Module(key) {}
  ws::Tensor forward(const ws::Tensor& x) const override { return out(ws::tanh(hidden(x))); }
};

/// Points in the plane; the class says whether the coordinates have the same sign.
void make_data(std::vector<float>& points, std::vector<int32_t>& labels) {
  ws::RandomStream random(ws::Key(1));
  for (size_t i = 0; i < labels.size(); ++i) {
    double a = random.normal(), b = random.normal();
    points[2 * i] = static_cast<float>(a);
    points[2 * i + 1] = static_cast<float>(b);
    labels[i] = a * b > 0 ? 1 : 0;
  }
}

/// Losses of `steps` steps, compiled or not.
std::vector<double> train(bool compiled, const ws::Tensor& x, const ws::Tensor& y, int steps) {
  Net model(ws::Key(0));
  ws::AdamW optimizer(model.parameters(), {.lr = 0.01});
  auto step = [&](const ws::Tensor& points, const ws::Tensor& labels) {
    ws::Tensor loss = ws::cross_entropy(model(points), labels);
    optimizer.update(ws::grad(loss, model.parameters()));
    return loss;
  };
  auto compiled_step = ws::jit(step, model, optimizer);
  std::vector<double> losses;
  for (int i = 0; i < steps; ++i) losses.push_back(compiled ? compiled_step(x, y).item() : step(x, y).item());
  return losses;
}

}  // namespace

int main() {
  std::vector<float> points(512);
  std::vector<int32_t> labels(256);
  make_data(points, labels);
  auto x = ws::Tensor::from(std::span<const float>(points), {256, 2});
  auto y = ws::Tensor::from(std::span<const int32_t>(labels), {256});
  std::vector<double> loop = train(false, x, y, 200), compiled = train(true, x, y, 200);
  std::printf("loss %.4f -> %.4f in 200 steps; loop and compiled %s\n", compiled.front(), compiled.back(),
              loop == compiled ? "give the same bits" : "DIFFER");
  return loop == compiled && compiled.back() < 0.2 ? 0 : 1;
}
