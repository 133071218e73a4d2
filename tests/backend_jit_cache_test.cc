// The compiler around its code: equal kernels once, threads, the disk cache and what may happen to its files (C53).
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "backend/cpu/jit/code_image.h"
#include "backend/cpu/jit/disk_cache.h"
#include "backend/cpu/jit/fingerprint.h"
#include "backend_jit_support.h"

namespace ws::test {
namespace {

namespace fs = std::filesystem;
using Kernels = std::vector<std::shared_ptr<const LoopKernel>>;

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "wholestep_cache_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() {
    fs::permissions(path_, fs::perms::owner_all);
    fs::remove_all(path_);
  }
  const std::string& path() const { return path_; }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(path_)) out.push_back(entry.path());
    return out;
  }

 private:
  std::string path_;
};

std::shared_ptr<const LoopKernel> chain(std::string_view op, int length) {
  KernelWriter w(Walk::kElements, 1);
  int v = w.load(DType::f32);
  for (int i = 0; i < length; ++i) v = w.op(op, {v});
  w.store(v, DType::f32);
  return w.done();
}
Kernels some_kernels() { return {chain("exp", 1), chain("tanh", 2), chain("neg", 3), chain("exp", 1)}; }

/// Results of all kernels on fixed input.
std::vector<float> results(const std::vector<LoopCode>& codes, const Kernels& kernels) {
  std::vector<float> out;
  for (size_t k = 0; k < kernels.size(); ++k) {
    Array x(DType::f32, 37), y(DType::f32, 37);
    fill_random(x, 1);
    Call(*kernels[k], {37}).bind_dense(0, x).bind_dense(1, y).run(codes[k], Walk::kElements);
    for (int64_t i = 0; i < 37; ++i) out.push_back(y.at<float>(i));
  }
  return out;
}
std::vector<float> results_with(const std::string& folder, LoopCompiler::Stats* stats = nullptr) {
  LoopCompiler own({machine_isas().back(), folder, 2});
  const Kernels kernels = some_kernels();
  const auto out = results(own.compile(kernels), kernels);
  if (stats) *stats = own.stats();
  return out;
}

TEST(JitCompiler, EqualKernelsOnce) {
  LoopCompiler own({machine_isas().back(), "", 2});
  const Kernels kernels = some_kernels();
  const auto first = own.compile(kernels);
  EXPECT_EQ(own.stats().compiled, 3);
  EXPECT_EQ(own.stats().from_memory, 1);
  EXPECT_EQ(first[0].fn, first[3].fn);
  const auto again = own.compile(some_kernels());  // equal, not the same
  for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].fn, first[i].fn);
  EXPECT_EQ(own.stats().compiled, 3);
  EXPECT_EQ(own.stats().from_memory, 5);
  EXPECT_TRUE(own.compile({}).empty());
}

TEST(JitCompiler, KeyHoldsWhatCodeDependsOn) {
  auto base = [] {
    LoopKernel k;
    k.accesses = {{DType::f32, Step::kUnit}, {DType::f32, Step::kUnit}};
    LoopInstr load, op, store;
    load.access = 0;
    op.kind = LoopInstr::Kind::kOp, op.op = find_op("exp"), op.operands = {0};
    store.kind = LoopInstr::Kind::kStore, store.operands = {1}, store.access = 1;
    k.body = {load, op, store};
    return k;
  };
  const std::string key = base().key();
  EXPECT_EQ(base().key(), key);
  std::vector<LoopKernel> others(10, base());
  others[0].rank = 2;
  others[1].walk = Walk::kRows;
  others[2].accesses[0].step = Step::kSplat;
  others[3].accesses[1].dtype = DType::bf16;
  others[4].scalars = {DType::f32};
  others[5].body[1].op = find_op("log");
  others[6].body[1].dtype = DType::bf16;
  others[7].body[1].attrs.set("a", 1.0);
  others[8].body[0].is_max = true;
  others[9].body[2].operands = {0};
  for (size_t i = 0; i < others.size(); ++i) EXPECT_NE(others[i].key(), key) << i;
}

TEST(JitCompiler, FingerprintSeesAChangedFormula) {
  const auto kernel = chain("exp", 1);
  OpDef changed = *find_op("exp");
  changed.emit = [](ScalarBuilder& b, std::span<const ScalarBuilder::S> in, const Attrs& attrs) {
    return b.add(find_op("exp")->emit(b, in, attrs), b.constant(DType::f32, 1e-7));
  };
  KernelWriter w(Walk::kElements, 1);
  w.store(w.op(changed, {w.load(DType::f32)}), DType::f32);
  EXPECT_EQ(w.done()->key(), kernel->key());
  EXPECT_NE(cpu::emission_fingerprint(*w.done()), cpu::emission_fingerprint(*kernel));
  EXPECT_EQ(cpu::emission_fingerprint(*chain("exp", 1)), cpu::emission_fingerprint(*kernel));
}

TEST(JitCompiler, ManyThreadsAtOnce) {
  LoopCompiler own({machine_isas().back(), "", 2});
  const Kernels kernels = some_kernels();
  const auto expected = results_with("");
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 3; ++round)
        if (results(own.compile(kernels), kernels) != expected) ++wrong;
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(own.stats().compiled, 3);
}

TEST(JitCompiler, AnIllFormedKernelIsAnInternalError) {
  KernelWriter w(Walk::kElements, 1);
  w.store(w.reduce_row(w.load(DType::f32), DType::f32), DType::f32);
  const auto kernel = w.done();
  EXPECT_THROW(compiler(machine_isas().back()).compile(std::span(&kernel, 1)), InternalError);
}

TEST(JitCompiler, Dumps) {
  const auto kernel = chain("exp", 1);
  for (Isa isa : machine_isas()) {
    EXPECT_NE(compiler(isa).llvm_ir(*kernel).find("define void @kernel"), std::string::npos);
    const std::string assembly = compiler(isa).assembly(*kernel);
    EXPECT_EQ(assembly.find("zmm") != std::string::npos, isa == Isa::avx512);
    EXPECT_NE(assembly.find("vfmadd"), std::string::npos);
  }
}

TEST(JitCache, SecondCompilerFindsAll) {
  const Folder folder;
  LoopCompiler::Stats stats;
  const auto expected = results_with(folder.path() + "/new/code", &stats);
  EXPECT_EQ(stats.compiled, 3);
  EXPECT_EQ(results_with(folder.path() + "/new/code", &stats), expected);
  EXPECT_EQ(stats.compiled, 0);
  EXPECT_EQ(stats.from_disk, 3);
  EXPECT_EQ(results_with(""), expected);
}

TEST(JitCache, InstructionSetsDoNotMix) {
  if (machine_isas().size() < 2) GTEST_SKIP() << "one instruction set";
  const Folder folder;
  const auto kernel = chain("exp", 1);
  LoopCompiler avx512({Isa::avx512, folder.path(), 1}), avx2({Isa::avx2, folder.path(), 1});
  avx512.compile(std::span(&kernel, 1));
  avx2.compile(std::span(&kernel, 1));
  EXPECT_EQ(avx2.stats().compiled, 1);
}

TEST(JitCache, DamagedFilesCountAsMissing) {
  const auto expected = results_with("");
  auto damage = [&](const char* what, auto&& change) {
    const Folder folder;
    results_with(folder.path());
    ASSERT_EQ(folder.files().size(), 3u);
    for (const fs::path& file : folder.files()) {
      std::ifstream in(file, std::ios::binary);
      std::string bytes((std::istreambuf_iterator<char>(in)), {});
      change(bytes);
      std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
    }
    LoopCompiler::Stats stats;
    EXPECT_EQ(results_with(folder.path(), &stats), expected) << what;
    EXPECT_EQ(stats.from_disk, 0) << what;
    EXPECT_EQ(results_with(folder.path(), &stats), expected) << what;
    EXPECT_EQ(stats.from_disk, 3) << what << ": mended";
  };
  damage("empty", [](std::string& b) { b.clear(); });
  damage("half", [](std::string& b) { b.resize(b.size() / 2); });
  damage("a byte short", [](std::string& b) { b.pop_back(); });
  damage("a byte more", [](std::string& b) { b.push_back('x'); });
  damage("noise", [](std::string& b) {
    std::mt19937 random(1);
    for (char& c : b) c = static_cast<char>(random());
  });
  damage("one bit of the code", [](std::string& b) { b[b.size() - 20] = static_cast<char>(b[b.size() - 20] ^ 1); });
  for (size_t field = 0; field < 6; ++field)
    damage("a field of the header", [&](std::string& b) { b[8 * field + 1] = static_cast<char>(b[8 * field + 1] ^ 4); });
}

TEST(JitCache, AnEntryOfAnotherKernelIsNotTaken) {
  const Folder folder;
  const cpu::DiskCache cache(folder.path());
  const cpu::CodeImage image{{0xc3, 1, 2, 3}, 0, 2};
  ASSERT_TRUE(cache.insert("one", image));
  fs::copy(cache.path_of("one"), cache.path_of("two"));
  EXPECT_FALSE(cache.find("two").has_value());
  const auto found = cache.find("one");
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->bytes, image.bytes);
  EXPECT_EQ(found->scratch_slots, 2);
}

TEST(JitCache, ReadOnlyOrImpossibleFolders) {
  const auto expected = results_with("");
  const Folder folder;
  fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_EQ(results_with(folder.path()), expected);
  EXPECT_EQ(results_with(folder.path() + "/below"), expected);
  EXPECT_EQ(results_with("/proc/nowhere/cache"), expected);
  EXPECT_EQ(results_with("/dev/null"), expected);
}

TEST(JitCache, FourProcessesOnOneFolder) {
  const Folder folder;
  const auto expected = results_with("");
  std::vector<pid_t> children;
  for (int p = 0; p < 4; ++p) {
    const pid_t child = fork();
    if (child == 0) {
      bool right = true;
      for (int round = 0; round < 3; ++round) right = right && results_with(folder.path()) == expected;
      _exit(right ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_EQ(folder.files().size(), 3u) << "temporary files are gone";
}

TEST(JitImage, RefusesWhatItCannotLink) {
  const std::vector<uint8_t> noise(300, 7);
  EXPECT_THROW(cpu::link_object(noise, "kernel"), InternalError);
  EXPECT_THROW(cpu::link_object({}, "kernel"), InternalError);
}

TEST(JitIsa, NamesAndSupport) {
  EXPECT_EQ(cpu::isa_from_name("avx2"), Isa::avx2);
  EXPECT_EQ(cpu::isa_from_name("avx512"), Isa::avx512);
  EXPECT_FALSE(cpu::isa_from_name("sse").has_value());
  ASSERT_FALSE(machine_isas().empty());
  EXPECT_EQ(cpu::loop_isa(cpu::best_isa()), machine_isas().back());
  EXPECT_EQ(cpu::isa_from_name("avx512_bf16"), Isa::avx512_bf16);
}

}  // namespace
}  // namespace ws::test
