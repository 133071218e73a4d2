#include "backend/cpu/jit/loop_compiler.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_map>

#include <fmt/core.h>

#include "backend/cpu/jit/code_generator.h"
#include "backend/cpu/jit/disk_cache.h"
#include "backend/cpu/jit/fingerprint.h"

namespace ws::cpu {

struct LoopCompiler::Impl {
  /// A kernel of this call that memory does not have.
  struct Job {
    std::string key;
    const LoopKernel* kernel = nullptr;
    CodeImage image;
    bool from_disk = false;
  };

  explicit Impl(const LoopCompilerOptions& o) : options(o), cache(o.cache_directory) {}

  /// Tells apart all that may have different code: on disk the entry outlives this build.
  std::string disk_key(const Job& job) const {
    return fmt::format("{} {}\n{:016x}\n{}", CodeGenerator::version(), name_of(options.isa), emission_fingerprint(*job.kernel),
                       job.key);
  }

  void obtain_all(std::vector<Job>& jobs) {
    // The cache answers in microseconds, so threads are only worth it for what it lacks.
    std::vector<Job*> missing;
    for (Job& job : jobs) {
      auto image = cache.enabled() ? cache.find(disk_key(job)) : std::nullopt;
      if (image) {
        job.image = std::move(*image);
        job.from_disk = true;
      } else {
        missing.push_back(&job);
      }
    }
    std::atomic<size_t> next{0};
    std::exception_ptr failure;
    std::mutex failure_mutex;
    auto work = [&] {
      try {
        std::unique_ptr<CodeGenerator> generator;
        for (size_t i = next++; i < missing.size(); i = next++) {
          if (!generator) generator = std::make_unique<CodeGenerator>(options.isa);
          Job& job = *missing[i];
          job.image = generator->generate(*job.kernel);
          if (cache.enabled()) cache.insert(disk_key(job), job.image);
        }
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        failure = std::current_exception();
      }
    };
    std::vector<std::thread> threads;
    const size_t wanted = std::min(missing.size(), static_cast<size_t>(std::max(options.num_threads, 1)));
    for (size_t t = 1; t < wanted; ++t) threads.emplace_back(work);
    work();
    for (std::thread& t : threads) t.join();
    if (failure) std::rethrow_exception(failure);
  }

  LoopCompilerOptions options;
  DiskCache cache;
  std::mutex mutex;
  std::unordered_map<std::string, LoopCode> codes;  // by LoopKernel::key()
  CodeMemory memory;
  Stats stats;
};

LoopCompiler::LoopCompiler(const LoopCompilerOptions& options) : impl_(std::make_unique<Impl>(options)) {}
LoopCompiler::~LoopCompiler() = default;

std::vector<LoopCode> LoopCompiler::compile(std::span<const std::shared_ptr<const LoopKernel>> kernels) {
  const auto start = std::chrono::steady_clock::now();
  const std::lock_guard lock(impl_->mutex);
  std::vector<std::string> keys;
  std::vector<Impl::Job> jobs;
  std::unordered_map<std::string_view, size_t> queued;
  keys.reserve(kernels.size());
  for (const auto& kernel : kernels) {
    keys.push_back(kernel->key());
    const std::string& key = keys.back();
    if (impl_->codes.contains(key) || queued.contains(key)) {
      ++impl_->stats.from_memory;
      continue;
    }
    queued.emplace(key, jobs.size());
    jobs.push_back({key, kernel.get(), {}, false});
  }
  impl_->obtain_all(jobs);
  std::vector<const CodeImage*> images;
  for (const auto& job : jobs) images.push_back(&job.image);
  const std::vector<void*> entries = impl_->memory.place(images);
  for (size_t i = 0; i < jobs.size(); ++i) {
    ++(jobs[i].from_disk ? impl_->stats.from_disk : impl_->stats.compiled);
    impl_->codes.emplace(jobs[i].key, LoopCode{reinterpret_cast<LoopFn>(entries[i]), jobs[i].image.scratch_slots});
  }
  std::vector<LoopCode> out;
  for (const std::string& key : keys) out.push_back(impl_->codes.at(key));
  impl_->stats.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return out;
}

LoopCompiler::Stats LoopCompiler::stats() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->stats;
}

std::string LoopCompiler::llvm_ir(const LoopKernel& kernel) { return CodeGenerator(impl_->options.isa).llvm_ir(kernel); }
std::string LoopCompiler::assembly(const LoopKernel& kernel) { return CodeGenerator(impl_->options.isa).assembly(kernel); }

}  // namespace ws::cpu
