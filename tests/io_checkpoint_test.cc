// Checkpoint folders: whole or not there, whenever the process that writes them dies.
#include "io/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "support/error.h"

namespace ws {
namespace {

Tensor constant(double value, int64_t count) {
  return Tensor::from(std::vector<float>(static_cast<size_t>(count), static_cast<float>(value)), {count});
}

/// Every part of the checkpoint says `number`.
void save_numbered(const std::string& folder, int number) {
  Variable weight("w", constant(number, 20000)), moment("m", constant(number, 20000));
  save_checkpoint(folder, {{{"model", "none"}},
                           {{"step", number}},
                           {{"w", weight}},
                           {{"m", moment}},
                           {{"losses", Tensor::full({3}, number, DType::f64)}}});
}

/// The number that all parts agree on.
int load_numbered(const std::string& folder) {
  Variable weight("w", constant(-1, 20000)), moment("m", constant(-1, 20000));
  load_checkpoint_variables(folder, {{"w", weight}}, {{"m", moment}});
  auto step = static_cast<int>(json_get<int64_t>(load_checkpoint_state(folder), "step", folder));
  for (const Variable& v : {weight, moment})
    for (float x : v.value().to_vector<float>())
      if (x != static_cast<float>(step)) fail("{} of step {} in the checkpoint of step {}", v.name(), x, step);
  if (load_checkpoint_history(folder)[0].second.to_vector<double>()[2] != step) fail("the history is of another step");
  load_checkpoint_config(folder);
  return step;
}

TEST(Checkpoint, AKilledProcessLeavesAWholeOneOldOrNew) {
  // In memory where there is such a place: on a slow disk a save would take longer than all attempts should.
  std::string shared = "/dev/shm", place = access(shared.c_str(), W_OK) == 0 ? shared : testing::TempDir();
  std::string parent = fmt::format("{}/wholestep-killed-{}", place, getpid()), folder = parent + "/checkpoint";
  save_numbered(folder, 0);
  auto begin = std::chrono::steady_clock::now();
  save_numbered(folder, 0);
  auto one_save = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin).count();
  std::mt19937_64 random(7);
  int last = 0, progressed = 0;
  for (int attempt = 0; attempt < 50; ++attempt) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int number = last + 1;; ++number) save_numbered(folder, number);
    }
    usleep(static_cast<useconds_t>(random() % static_cast<uint64_t>(4 * one_save + 1000)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself";
    int found = load_numbered(folder);
    ASSERT_GE(found, last) << "attempt " << attempt;
    progressed += found > last;
    last = found;
  }
  EXPECT_GT(progressed, 10) << "the kills came before anything was saved";
  save_numbered(folder, last + 1);  // removes what the killed ones left
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(parent)) ++entries;
  EXPECT_EQ(entries, 1);
  std::filesystem::remove_all(parent);
}

TEST(Checkpoint, BothFilesAreReadOrNeither) {
  std::string folder = testing::TempDir() + "/mixed";
  save_numbered(folder, 3);
  Variable weight("w", constant(-1, 20000)), moment("m", constant(-1, 5));
  EXPECT_THROW(load_checkpoint_variables(folder, {{"w", weight}}, {{"m", moment}}), Error);
  EXPECT_EQ(weight.value().to_vector<float>()[0], -1);
}

}  // namespace
}  // namespace ws
