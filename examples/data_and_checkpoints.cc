// Data from files, callbacks, and a training that is cut and goes on: the weights are those of one that never stopped.
#include <wholestep/wholestep.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

/// A table of noisy points of a plane.
void write_table(const std::string& path) {
  std::ofstream file(path);
  file << "x1,x2,height\n";
  ws::RandomStream random(ws::Key(1));
  for (int i = 0; i < 400; ++i) {
    double x1 = random.normal(), x2 = random.normal();
    file << x1 << ',' << x2 << ',' << 2 * x1 - x2 + 0.1 * random.normal() << '\n';
  }
}

/// Trains to epoch 6, or for `updates` updates if that is above 0; returns the weights.
std::vector<float> train(const ws::Dataset& data, const std::string& folder, int updates, bool resume) {
  auto model = ws::models::mlp({2, 16, 1}, ws::Key(0));
  ws::Trainer trainer(model, ws::MSE(), ws::AdamW({.lr = 0.01}), {.compile = true});
  ws::FitOptions options{.epochs = 6, .batch_size = 32, .checkpoint_dir = folder, .checkpoint_every = 10, .resume = resume};
  options.on_step = [&](const ws::StepInfo& s) { return s.step == updates ? ws::Then::stop : ws::Then::go_on; };
  ws::History history = trainer.fit(data.X, data.y, options);
  std::printf("%s: %zu updates, loss of the last %.4f\n", folder.c_str(), history.step_losses.size(), history.step_losses.back());
  return model.find("layers.0.weight").value().to_vector<float>();
}

}  // namespace

int main() {
  std::string place = (std::filesystem::temp_directory_path() / "wholestep_example").string();
  std::filesystem::remove_all(place);
  std::filesystem::create_directories(place);
  write_table(place + "/heights.csv");
  ws::Dataset data = ws::load_dataset(place + "/heights.csv", "height");  // X: x1 and x2; y: the column named

  std::vector<float> whole = train(data, place + "/whole", 0, false);
  train(data, place + "/cut", 47, false);                               // stops within epoch 3
  std::vector<float> continued = train(data, place + "/cut", 0, true);  // goes on there
  std::filesystem::remove_all(place);
  std::printf("the same weights: %s\n", whole == continued ? "yes" : "no");
  return whole == continued ? 0 : 1;
}
