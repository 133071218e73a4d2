// The CPU backend: compiles the loops of a program, binds its calls, runs them in order.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <new>
#include <set>

#include "backend/backend.h"
#include "backend/cpu/launch.h"
#include "support/communicator.h"
#include "support/error.h"
#include "support/flags.h"
#include "support/log.h"

namespace ws {
namespace cpu {
namespace {

constexpr int64_t kHugeFrom = 4 << 20;  // blocks from this size on are mapped and asked to use huge pages

class CpuProgram final : public DeviceProgram {
 public:
  CpuProgram(std::shared_ptr<const Program> program, const MemoryPlan& plan, int num_threads, Isa isa, LoopCompiler& compiler)
      : program_(std::move(program)), plan_(plan), book_(program_->buffers.size()) {
    std::vector<std::shared_ptr<const LoopKernel>> kernels;
    std::vector<size_t> first_kernel;
    for (const KernelCall& call : program_->calls) {
      first_kernel.push_back(kernels.size());
      if (const auto* loop = std::get_if<LoopCall>(&call.what)) kernels.push_back(loop->kernel);
      if (const auto* gemm = std::get_if<GemmCall>(&call.what); gemm != nullptr && gemm->store != nullptr)
        kernels.push_back(gemm->store->kernel);
      if (const auto* library = std::get_if<LibraryCall>(&call.what))
        for (auto& k : loops_of(*program_, *library, isa)) kernels.push_back(std::move(k));
    }
    first_kernel.push_back(kernels.size());
    const std::vector<LoopCode> code = compiler.compile(kernels);
    if (flags().debug >= 6) {
      std::set<std::string> shown;
      for (const auto& kernel : kernels)
        if (shown.insert(kernel->key()).second) note("generated code\n{}", compiler.llvm_ir(*kernel));
    }
    int64_t scratch = 0;
    for (size_t c = 0; c < program_->calls.size(); ++c) {
      const KernelCall& call = program_->calls[c];
      const std::span<const LoopCode> own(code.data() + first_kernel[c], first_kernel[c + 1] - first_kernel[c]);
      if (const auto* loop = std::get_if<LoopCall>(&call.what)) {
        launches_.push_back(launch_loop(*program_, *loop, own[0], book_));
        scratch = std::max(scratch, loop_scratch_bytes(*loop, own[0]));
      } else if (const auto* gemm = std::get_if<GemmCall>(&call.what)) {
        launches_.push_back(launch_gemm(*program_, *gemm, own.empty() ? nullptr : own.data(), isa, book_));
        if (gemm->store != nullptr) scratch = std::max(scratch, loop_scratch_bytes(*gemm->store, own[0]));
      } else {
        launches_.push_back(launch_library(*program_, std::get<LibraryCall>(call.what), static_cast<int>(c), isa, own, book_));
      }
      checks_.push_back(launches_.back()->may_stop());
    }
    scratch_stride_ = (scratch + 63) / 64 * 64;
    scratch_bytes_ = scratch_stride_ * num_threads;
    if (scratch_bytes_ > 0)
      scratch_ = static_cast<char*>(::operator new (static_cast<size_t>(scratch_bytes_), std::align_val_t{64}));
    inputs_.assign(program_->input_buffers.size(), nullptr);
    outputs_.assign(program_->outputs.size(), nullptr);
    for (size_t b = 0; b < program_->buffers.size(); ++b) {
      if (plan_.offsets[b] >= 0) arena_buffers_.push_back(static_cast<int>(b));
      if (const int in = program_->buffers[b].alias_of; in >= 0)
        aliases_[program_->buffers[static_cast<size_t>(in)].index].push_back(static_cast<int>(b));
    }
    aliases_of_input_.resize(inputs_.size());
    for (auto& [input, buffers] : aliases_) aliases_of_input_[static_cast<size_t>(input)] = buffers;
  }
  ~CpuProgram() override {
    if (scratch_ != nullptr) ::operator delete (scratch_, std::align_val_t{64});
  }

  StepStatus run(void* const* inputs, void* const* outputs, void* arena, Workers& workers) override {
    bind(inputs, outputs, arena);
    RunContext context{workers, scratch_, scratch_stride_, {}};
    for (size_t i = 0; i < launches_.size(); ++i) {
      launches_[i]->run(context);
      if (checks_[i] && context.status) [[unlikely]]
        return stop(context);
    }
    return context.status;
  }

  StepStatus run_observed(void* const* inputs, void* const* outputs, void* arena, Workers& workers, Observe observe,
                          void* observer) override {
    bind(inputs, outputs, arena);
    RunContext context{workers, scratch_, scratch_stride_, {}};
    for (size_t i = 0; i < launches_.size(); ++i) {
      observe(observer, static_cast<int>(i), -1);
      const auto begin = std::chrono::steady_clock::now();
      launches_[i]->run(context);
      const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin).count();
      observe(observer, static_cast<int>(i), ns);
      if (checks_[i] && context.status) return stop(context);
    }
    return context.status;
  }

  int64_t scratch_bytes() const override { return scratch_bytes_; }

 private:
  /// What travels to other ranks uses the arena: it arrives before anyone else may.
  static StepStatus stop(const RunContext& context) {
    communicator().finish_all();
    return context.status;
  }
  void bind(void* const* inputs, void* const* outputs, void* arena) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (inputs[i] == inputs_[i]) continue;
      inputs_[i] = inputs[i];
      book_.set_base(program_->input_buffers[i], inputs[i]);
      for (int b : aliases_of_input_[i]) book_.set_base(b, inputs[i]);
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs[i] == outputs_[i]) continue;
      outputs_[i] = outputs[i];
      const int b = program_->outputs[i].buffer;
      if (program_->buffers[static_cast<size_t>(b)].alias_of < 0) book_.set_base(b, outputs[i]);
    }
    if (arena != arena_) {
      arena_ = arena;
      for (int b : arena_buffers_) book_.set_base(b, static_cast<char*>(arena) + plan_.offsets[static_cast<size_t>(b)]);
    }
  }

  std::shared_ptr<const Program> program_;
  MemoryPlan plan_;
  AddressBook book_;
  std::vector<std::unique_ptr<Launch>> launches_;
  std::vector<char> checks_;             // by call: may stop the step
  std::vector<void*> inputs_, outputs_;  // as bound last
  void* arena_ = nullptr;
  std::vector<int> arena_buffers_;
  std::map<int, std::vector<int>> aliases_;
  std::vector<std::vector<int>> aliases_of_input_;
  char* scratch_ = nullptr;
  int64_t scratch_stride_ = 0, scratch_bytes_ = 0;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(Isa isa)
      : isa_(isa), compiler_({loop_isa(isa), flags().cache ? cache_folder() + "/code" : std::string(), configured_threads()}) {}
  std::string name() const override { return "cpu:" + std::string(name_of(isa_)); }
  int64_t workspace_bytes(const GemmCall& call, int num_threads) const override {
    return gemm_workspace_bytes(gemm_shape(call, isa_), gemm_isa(isa_), num_threads);
  }
  int64_t workspace_bytes(const LibraryCall& call, const Program& program, int num_threads) const override {
    return library_workspace_bytes(call, program, isa_, num_threads);
  }
  std::unique_ptr<DeviceProgram> load(std::shared_ptr<const Program> program, const MemoryPlan& plan, int num_threads) override {
    return std::make_unique<CpuProgram>(std::move(program), plan, num_threads, isa_, compiler_);
  }
  void* allocate(int64_t bytes) override {
    if (bytes <= 0) return nullptr;
    if (bytes < kHugeFrom) return ::operator new (static_cast<size_t>(bytes), std::align_val_t{64});
    void* memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    return memory;
  }
  void release(void* memory, int64_t bytes) override {
    if (memory == nullptr) return;
    if (bytes < kHugeFrom)
      ::operator delete (memory, std::align_val_t{64});
    else
      munmap(memory, static_cast<size_t>(bytes));
  }
  LoopCompiler& compiler() { return compiler_; }

 private:
  Isa isa_;
  LoopCompiler compiler_;
};

}  // namespace
}  // namespace cpu

Backend& cpu_backend() {
  static cpu::CpuBackend* backend = new cpu::CpuBackend(cpu::wanted_isa(flags().isa));  // lives as long as its code may run
  return *backend;
}

}  // namespace ws
