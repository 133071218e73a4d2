#include <fmt/core.h>

#include "command.h"
#include "ladder/climb.h"
#include "support/flags.h"

namespace ws::cli {
namespace {

double seconds_of(const std::function<void()>& body) {
  double begin = now_seconds();
  body();
  return now_seconds() - begin;
}

/// Medians of two bodies in turn: seconds of each.
std::pair<double, double> in_turns(int rounds, const std::function<void()>& first, const std::function<void()>& second) {
  std::vector<double> a, b;
  for (int i = 0; i < rounds; ++i) a.push_back(seconds_of(first)), b.push_back(seconds_of(second));
  return {median(a), median(b)};
}

Json trap(const std::string& name, double cost, const std::string& how) {
  return {{"trap", name}, {"cost", json_number(cost)}, {"how", how}};
}

}  // namespace

Json measure_traps(const Bench& bench) {
  const Task& task = bench.task;
  Job job(task, Setup{});  // its own: what happens here trains no other
  job.step();
  int rounds = bench.timing.rounds;
  int64_t batch = job.setup().batch;
  Json list = Json::array();

  Samples cached = task.draw(job.steps(), batch);
  auto [fresh, same] = in_turns(
      rounds, [&] { job.step(); }, [&] { job.step_on(cached); });
  list.push_back(trap("one cached batch, timed again and again", fresh / same - 1,
                      fmt::format("{:.2f} ms a step against {:.2f} with fresh batches: {}trains on one batch", same * 1e3,
                                  fresh * 1e3, same < fresh ? "looks faster, and " : "")));

  if (task.stream) {
    auto [staged, streamed] = in_turns(
        std::min(rounds, 3), [&] { job.step(); }, [&] { job.step_on(task.stream(job.steps(), batch)); });
    list.push_back(
        trap("a loader that reads and encodes the text for each batch", streamed / staged - 1,
             fmt::format("{:.2f} ms a step against {:.2f} with the corpus staged once", streamed * 1e3, staged * 1e3)));
  }

  if (batch > 1) {
    Samples ragged = task.draw(job.steps(), batch - 1);
    int before = job.program().compile_count();
    double first = seconds_of([&] { job.step_on(ragged); });
    auto [whole, short_step] = in_turns(
        rounds, [&] { job.step(); }, [&] { job.step_on(ragged); });
    list.push_back(trap("a ragged last batch inside the timed window", first / whole - 1,
                        fmt::format("batch {} is program {} of this step: its first call took {:.1f} ms, the next ones {:.1f}",
                                    batch - 1, before + 1, first * 1e3, short_step * 1e3)));
  }
  list.push_back({{"trap", "a clock stopped before the work is done"},
                  {"cost", nullptr},
                  {"how", "none here: a step on the CPU has ended when the call returns"}});
  return list;
}

}  // namespace ws::cli
