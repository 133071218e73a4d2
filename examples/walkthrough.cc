// The small model that docs/walkthrough.md follows from here to machine code. Prints the graph and the program of its step.
#include <wholestep/wholestep.h>

#include <cstdio>

int main() {
  auto model = ws::models::mlp({8, 16, 1}, ws::Key(0));
  ws::SGD optimizer(model.parameters(), {.lr = 0.01});
  auto step = ws::jit(
      [&](const ws::Tensor& x, const ws::Tensor& y) {
        ws::Tensor loss = ws::mse(model(x), y);
        optimizer.update(ws::grad(loss, model.parameters()));
        return loss;
      },
      model, optimizer);
  step(ws::Tensor::ones({4, 8}), ws::Tensor::zeros({4, 1}));
  std::printf("%s\n%s", step.as_text().c_str(), step.program_text().c_str());
  return 0;
}
