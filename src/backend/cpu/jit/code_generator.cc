#include "backend/cpu/jit/code_generator.h"

#include <mutex>

#include <llvm/ADT/SmallVector.h>
#include <llvm/Analysis/TargetTransformInfo.h>
#include <llvm/CodeGen/MachineModuleInfo.h>
#include <llvm/CodeGen/Passes.h>
#include <llvm/CodeGen/TargetPassConfig.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Module.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Pass.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>
#include <llvm/Target/TargetOptions.h>
#include <llvm/Transforms/Scalar.h>

#include "backend/cpu/jit/loop_emitter.h"
#include "support/error.h"

namespace ws::cpu {
namespace {

constexpr const char* kTriple = "x86_64-unknown-linux-gnu";

const llvm::Target& x86_target() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(kTriple, error);
  WS_ASSERT(target, "LLVM: {}", error);
  return *target;
}

}  // namespace

struct CodeGenerator::Impl {
  explicit Impl(Isa which) : isa(which) {
    llvm::TargetOptions options;
    options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
    machine.reset(x86_target().createTargetMachine(kTriple, isa == Isa::avx512 ? "x86-64-v4" : "x86-64-v3", "", options,
                                                   llvm::Reloc::PIC_, llvm::CodeModel::Small, llvm::CodeGenOptLevel::Less));
  }

  std::unique_ptr<llvm::Module> emit(llvm::LLVMContext& context, const LoopKernel& kernel, int* scratch_slots) {
    auto module = std::make_unique<llvm::Module>("loop", context);
    module->setTargetTriple(kTriple);
    module->setDataLayout(machine->createDataLayout());
    const LoopPlan plan = plan_loop(kernel);
    if (scratch_slots) *scratch_slots = plan.num_slots * plan.rows;
    emit_loop(*module, kernel, plan, isa);
#ifndef NDEBUG
    std::string problems;
    llvm::raw_string_ostream stream(problems);
    WS_ASSERT(!llvm::verifyModule(*module, &stream), "{}\n{}", problems, kernel.key());
#endif
    return module;
  }

  /// What runs before instruction selection. The emitter leaves little to do: ops that share a subexpression. The target's
  /// costs come first, as the pass manager would otherwise settle on those of no target and take masked accesses apart.
  void optimise(llvm::legacy::PassManager& passes) {
    passes.add(llvm::createTargetTransformInfoWrapperPass(machine->getTargetIRAnalysis()));
    passes.add(llvm::createEarlyCSEPass());
  }

  llvm::SmallVector<char, 0> lower(llvm::Module& module, llvm::CodeGenFileType type) {
    llvm::SmallVector<char, 0> out;
    llvm::raw_svector_ostream stream(out);
    llvm::legacy::PassManager passes;
    optimise(passes);
    const bool unsupported = add_code_generation(passes, stream, type);
    WS_ASSERT(!unsupported, "LLVM emits no object here");
    passes.run(module);
    return out;
  }

  /// LLVM's pipeline without its passes on IR, which cost a third of the time: they expand what we do not emit, and turn addresses
  /// that x86 adds up for free into counters of their own.
  bool add_code_generation(llvm::legacy::PassManager& passes, llvm::raw_pwrite_stream& stream, llvm::CodeGenFileType type) {
    auto* llvm_machine = static_cast<llvm::LLVMTargetMachine*>(machine.get());
    auto* info = new llvm::MachineModuleInfoWrapperPass(llvm_machine);  // the pass manager owns what is added
    llvm::TargetPassConfig* config = llvm_machine->createPassConfig(passes);
    config->setDisableVerify(true);
    passes.add(config);
    passes.add(info);
    if (config->addInstSelector()) return true;
    passes.add(llvm::Pass::createPass(&llvm::FinalizeISelID));
    config->addMachinePasses();
    config->setInitialized();
    if (llvm_machine->addAsmPrinter(passes, stream, nullptr, type, info->getMMI().getContext())) return true;
    passes.add(llvm::createFreeMachineFunctionPass());
    return false;
  }

  Isa isa;
  std::unique_ptr<llvm::TargetMachine> machine;
};

CodeGenerator::CodeGenerator(Isa isa) : impl_(std::make_unique<Impl>(isa)) {}
CodeGenerator::~CodeGenerator() = default;

CodeImage CodeGenerator::generate(const LoopKernel& kernel) {
  llvm::LLVMContext context;
  context.setDiscardValueNames(true);
  int scratch_slots = 0;
  const auto module = impl_->emit(context, kernel, &scratch_slots);
  const auto object = impl_->lower(*module, llvm::CodeGenFileType::ObjectFile);
  CodeImage image = link_object({reinterpret_cast<const uint8_t*>(object.data()), object.size()}, kEntryName);
  image.scratch_slots = scratch_slots;
  return image;
}

std::string CodeGenerator::llvm_ir(const LoopKernel& kernel) {
  llvm::LLVMContext context;
  const auto module = impl_->emit(context, kernel, nullptr);
  llvm::legacy::PassManager passes;
  impl_->optimise(passes);
  passes.run(*module);
  std::string text;
  llvm::raw_string_ostream stream(text);
  module->print(stream, nullptr);
  return text;
}

std::string CodeGenerator::assembly(const LoopKernel& kernel) {
  llvm::LLVMContext context;
  const auto module = impl_->emit(context, kernel, nullptr);
  const auto text = impl_->lower(*module, llvm::CodeGenFileType::AssemblyFile);
  return std::string(text.data(), text.size());
}

const std::string& CodeGenerator::version() {
  static const std::string version = fmt::format("wholestep-loops-{} llvm-{}", WS_LOOP_GENERATOR_HASH, LLVM_VERSION_STRING);
  return version;
}

}  // namespace ws::cpu
