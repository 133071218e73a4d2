#include "analysis/roofs.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "analysis/best_rate.h"
#include "analysis/rate_probes.h"
#include "analysis/roof_probes.h"
#include "backend/backend.h"
#include "backend/cpu/gemm/cache_sizes.h"
#include "runtime/thread_pool.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/machine.h"

namespace ws {
namespace {

// Every thread does the same at once. A thread may be late and another take its part: the best of several runs is the one
// where that did not happen.
template <class Body>
void on_all(Workers& workers, const Body& body) {
  workers.parallel_for(workers.num_threads(), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t part = begin; part < end; ++part) body(part);
  });
}

std::vector<cpu::Isa> isas_here() {
  std::vector<cpu::Isa> found;
  for (const cpu::Isa isa : {cpu::Isa::avx2, cpu::Isa::avx512})
    if (cpu::supports(isa)) found.push_back(isa);
  return found;
}

// `probe` runs that many rounds and returns the operations done.
template <class Probe>
Roofs::Peak measure_peak(cpu::Isa isa, Workers& workers, const Probe& probe) {
  constexpr double kSeconds = 0.06;
  const double flops = probe(1);
  Roofs::Peak peak;
  peak.isa = std::string(name_of(isa));
  peak.one_thread_flops_per_s = flops * best_rounds_per_second(kSeconds, [&](int64_t rounds) { probe(rounds); });
  const double each = best_rounds_per_second(kSeconds, [&](int64_t rounds) { on_all(workers, [&](int64_t) { probe(rounds); }); });
  peak.flops_per_s = std::max(peak.one_thread_flops_per_s, flops * each * workers.num_threads());
  return peak;
}

// Memory on huge pages where the system has them, so that page tables do not count as bandwidth.
class Block {
 public:
  explicit Block(size_t bytes) : bytes_(bytes) {
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail_at_run("{} MiB for measuring memory bandwidth could not be had", bytes >> 20);
    madvise(memory, bytes, MADV_HUGEPAGE);
    data_ = static_cast<float*>(memory);
  }
  ~Block() { munmap(data_, bytes_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  float* data() const { return data_; }

 private:
  size_t bytes_;
  float* data_;
};

// `bytes` is what each thread works on, half of it written in the copy.
void measure_level(Roofs::Level& level, int64_t bytes, cpu::Isa isa, float* data, int64_t part_floats, Workers& workers) {
  constexpr double kSeconds = 0.05;
  const int64_t n = std::min(bytes / 4, part_floats) / 256 * 256;
  const double total = 4.0 * static_cast<double>(n) * workers.num_threads();
  level.read_bytes_per_s = total * best_rounds_per_second(kSeconds, [&](int64_t rounds) {
                             on_all(workers, [&](int64_t part) { read_probe(isa, data + part * part_floats, n, rounds); });
                           });
  level.copy_bytes_per_s = total * best_rounds_per_second(kSeconds, [&](int64_t rounds) {
                             on_all(workers, [&](int64_t part) {
                               copy_probe(isa, data + part * part_floats, data + part * part_floats + n / 2, n / 2, rounds);
                             });
                           });
}

void measure_levels(Roofs& roofs, cpu::Isa isa, Workers& workers) {
  const cpu::CacheSizes& caches = cpu::cache_sizes();
  const int64_t threads = workers.num_threads();
  constexpr int64_t kMostDram = 512 << 20, kLeastDram = 64 << 20;
  const int64_t dram = std::clamp(4 * caches.l3_bytes, kLeastDram, kMostDram) / threads;
  const int64_t part_floats = dram / 4 / 1024 * 1024;
  const Block block(static_cast<size_t>(part_floats * threads * 4));
  on_all(workers, [&](int64_t part) { std::fill_n(block.data() + part * part_floats, part_floats, 1.0f); });
  roofs.levels = {
      {"L1", caches.l1d_bytes, 0, 0}, {"L2", caches.l2_bytes, 0, 0}, {"L3", caches.l3_bytes, 0, 0}, {"DRAM", 0, 0, 0}};
  const int64_t sets[] = {caches.l1d_bytes / 2, caches.l2_bytes / 2, std::max(caches.l2_bytes * 2, caches.l3_bytes / 2 / threads),
                          dram};
  for (size_t i = 0; i < roofs.levels.size(); ++i)
    measure_level(roofs.levels[i], sets[i], isa, block.data(), part_floats, workers);
}

}  // namespace

double Roofs::bytes_per_s(int64_t bytes) const {
  for (const Level& level : levels) {
    const bool shared = level.name != "L1" && level.name != "L2";
    if (level.bytes == 0 || bytes <= level.bytes * (shared ? 1 : threads)) return level.read_bytes_per_s;
  }
  return levels.empty() ? 0 : levels.back().read_bytes_per_s;
}

double Roofs::flops_per_s(const std::string& kind, double size) const {
  const Rate* below = nullptr;
  const Rate* above = nullptr;
  for (const Rate& rate : rates) {
    if (rate.kind != kind) continue;
    if (rate.size <= size) below = &rate;
    if (rate.size >= size && !above) above = &rate;
  }
  if (!below && !above) {
    constexpr std::string_view kBf16 = " bf16";
    return kind.ends_with(kBf16) ? flops_per_s(kind.substr(0, kind.size() - kBf16.size()), size) : fp32_flops_per_s;
  }
  if (!below || !above || below == above) return (below ? below : above)->flops_per_s;
  const double part = (std::log(size) - std::log(below->size)) / (std::log(above->size) - std::log(below->size));
  return below->flops_per_s + part * (above->flops_per_s - below->flops_per_s);
}

namespace {

Roofs measure_machine(int num_threads) {
  WorkersLease lease(num_threads);
  Workers& workers = lease.workers();
  Roofs roofs;
  roofs.cpu = cpu_model();
  roofs.threads = workers.num_threads();
  const std::vector<cpu::Isa> isas = isas_here();
  if (isas.empty()) fail("roofs: this machine has neither AVX2 nor AVX-512, which wholestep needs");
  for (const cpu::Isa isa : isas)
    roofs.peaks.push_back(measure_peak(isa, workers, [isa](int64_t rounds) { return fma_probe(isa, rounds); }));
  if (cpu::supports(cpu::Isa::avx512_bf16)) roofs.bf16_peaks.push_back(measure_peak(cpu::Isa::avx512_bf16, workers, bf16_probe));
  measure_levels(roofs, isas.back(), workers);
  for (const Roofs::Peak& peak : roofs.peaks) roofs.fp32_flops_per_s = std::max(roofs.fp32_flops_per_s, peak.flops_per_s);
  for (const Roofs::Peak& peak : roofs.bf16_peaks) roofs.bf16_flops_per_s = std::max(roofs.bf16_flops_per_s, peak.flops_per_s);
  roofs.memory_bytes_per_s = roofs.levels.back().read_bytes_per_s;
  constexpr double kSeconds = 0.03;
  int64_t touched = 0;
  const auto nothing = [&touched](int64_t begin, int64_t, int) {
    if (begin < 0) ++touched;
  };
  roofs.barrier_ns = 1e9 / best_rounds_per_second(kSeconds, [&](int64_t rounds) {
                       for (int64_t r = 0; r < rounds; ++r) workers.parallel_for(workers.num_threads(), 1, nothing);
                     });
  roofs.dispatch_ns = 1e9 / best_rounds_per_second(kSeconds, [&](int64_t rounds) {
                        for (int64_t r = 0; r < rounds; ++r) workers.parallel_for(1, 1, nothing);
                      });
  return roofs;
}

Json to_json(const std::vector<Roofs::Peak>& peaks) {
  Json list = Json::array();
  for (const Roofs::Peak& p : peaks)
    list.push_back({{"isa", p.isa}, {"flops_per_s", p.flops_per_s}, {"one_thread_flops_per_s", p.one_thread_flops_per_s}});
  return list;
}

}  // namespace

Roofs measure_roofs(int num_threads) {
  Roofs roofs = measure_machine(num_threads);
  roofs.rates = measure_rates(roofs.threads);
  // Neighbours may have disturbed the probe of the peak: what a kernel has reached is possible.
  for (const Roofs::Rate& rate : roofs.rates) {
    if (rate.kind == "matmul") roofs.fp32_flops_per_s = std::max(roofs.fp32_flops_per_s, rate.flops_per_s);
    if (rate.kind == "matmul bf16" && roofs.bf16_flops_per_s > 0)
      roofs.bf16_flops_per_s = std::max(roofs.bf16_flops_per_s, rate.flops_per_s);
  }
  return roofs;
}

Json to_json(const Roofs& roofs) {
  Json levels = Json::array(), rates = Json::array();
  for (const Roofs::Rate& r : roofs.rates) rates.push_back({{"kind", r.kind}, {"size", r.size}, {"flops_per_s", r.flops_per_s}});
  for (const Roofs::Level& l : roofs.levels)
    levels.push_back({{"name", l.name},
                      {"bytes", l.bytes},
                      {"read_bytes_per_s", l.read_bytes_per_s},
                      {"copy_bytes_per_s", l.copy_bytes_per_s}});
  return {{"cpu", roofs.cpu},
          {"threads", roofs.threads},
          {"fp32_flops_per_s", roofs.fp32_flops_per_s},
          {"bf16_flops_per_s", roofs.bf16_flops_per_s},
          {"memory_bytes_per_s", roofs.memory_bytes_per_s},
          {"peaks", to_json(roofs.peaks)},
          {"bf16_peaks", to_json(roofs.bf16_peaks)},
          {"levels", std::move(levels)},
          {"rates", std::move(rates)},
          {"barrier_ns", roofs.barrier_ns},
          {"dispatch_ns", roofs.dispatch_ns}};
}

Roofs roofs_from_json(const Json& json, const std::string& file) {
  const auto text = [&](const Json& j, const char* key) { return json_get<std::string>(j, key, file); };
  const auto number = [&](const Json& j, const char* key) { return json_get<double>(j, key, file); };
  Roofs roofs;
  roofs.cpu = text(json, "cpu");
  roofs.threads = static_cast<int>(json_get<int64_t>(json, "threads", file));
  roofs.fp32_flops_per_s = number(json, "fp32_flops_per_s");
  roofs.bf16_flops_per_s = number(json, "bf16_flops_per_s");
  roofs.memory_bytes_per_s = number(json, "memory_bytes_per_s");
  for (const Json& r : json_at(json, "rates", file))
    roofs.rates.push_back({text(r, "kind"), number(r, "size"), number(r, "flops_per_s")});
  for (auto [key, peaks] : {std::pair{"peaks", &roofs.peaks}, std::pair{"bf16_peaks", &roofs.bf16_peaks}})
    for (const Json& p : json_at(json, key, file))
      peaks->push_back({text(p, "isa"), number(p, "flops_per_s"), number(p, "one_thread_flops_per_s")});
  for (const Json& l : json_at(json, "levels", file))
    roofs.levels.push_back(
        {text(l, "name"), json_get<int64_t>(l, "bytes", file), number(l, "read_bytes_per_s"), number(l, "copy_bytes_per_s")});
  roofs.barrier_ns = number(json, "barrier_ns");
  roofs.dispatch_ns = number(json, "dispatch_ns");
  return roofs;
}

namespace {

/// "avx512", or what the flag ISA asks for: rates of kernels depend on it.
std::string isa_word() {
  const std::string backend = cpu_backend().name();
  return backend.substr(backend.find(':') + 1);
}

std::optional<Roofs> read_roofs(const std::string& file) {
  std::ifstream in(file);
  if (!in) return std::nullopt;
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  try {
    return roofs_from_json(parse_json(text, file), file);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Whole or not at all: another process may read it meanwhile.
void write_roofs(const std::string& file, const Roofs& roofs) {
  std::error_code error;
  if (const auto folder = std::filesystem::path(file).parent_path(); !folder.empty())
    std::filesystem::create_directories(folder, error);
  const std::string temporary = file + "." + std::to_string(getpid());
  {
    std::ofstream out(temporary);
    out << to_json(roofs).dump(2) << '\n';
    if (!out.flush()) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(temporary, file, error);
  if (error) std::filesystem::remove(temporary, error);
}

}  // namespace

Roofs cached_roofs(const std::string& file, int num_threads, bool fresh) {
  if (auto saved = fresh ? std::nullopt : read_roofs(file);
      saved && saved->cpu == cpu_model() && saved->threads == std::max(1, num_threads))
    return *std::move(saved);
  Roofs roofs = measure_roofs(num_threads);
  write_roofs(file, roofs);
  return roofs;
}

Roofs machine_roofs(int num_threads, bool fresh) {
  const int threads = num_threads > 0 ? num_threads : configured_threads();
  return cached_roofs(fmt::format("{}/roofs/{}_threads_{}.json", cache_folder(), threads, isa_word()), threads, fresh);
}

std::string Roofs::json() const { return to_json(*this).dump(); }

std::string Roofs::text() const {
  const Roofs& roofs = *this;
  std::string text = fmt::format("{}, {} thread{}\n", roofs.cpu, roofs.threads, roofs.threads == 1 ? "" : "s");
  for (auto [what, peaks] : {std::pair{"fp32 FMA", &roofs.peaks}, std::pair{"bf16 dot", &roofs.bf16_peaks}})
    for (const Roofs::Peak& p : *peaks)
      text += fmt::format("  {} {:<12} {:8.1f} GFLOP/s   one thread {:.1f}\n", what, p.isa, p.flops_per_s * 1e-9,
                          p.one_thread_flops_per_s * 1e-9);
  for (const Roofs::Level& l : roofs.levels) {
    const std::string size = l.bytes == 0          ? ""
                             : l.bytes < (1 << 20) ? fmt::format("{} KiB", l.bytes >> 10)
                                                   : fmt::format("{} MiB", l.bytes >> 20);
    text += fmt::format("  {:<5}{:>8}   read {:8.1f} GB/s   copy {:8.1f} GB/s\n", l.name, size, l.read_bytes_per_s * 1e-9,
                        l.copy_bytes_per_s * 1e-9);
  }
  for (const Roofs::Rate& r : roofs.rates)
    text += fmt::format("  {:<12}{:>6} {:8.1f} GFLOP/s in cache\n", r.kind, r.size > 0 ? fmt::format("{:.0f}", r.size) : "",
                        r.flops_per_s * 1e-9);
  return text + fmt::format("  barrier {:.2f} us, dispatch {:.1f} ns\n", roofs.barrier_ns * 1e-3, roofs.dispatch_ns);
}

}  // namespace ws
