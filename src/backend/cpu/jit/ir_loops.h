// Counted loops and branches for the code generator, so that no other file touches a phi node.
// Includes LLVM: for the code generator's own files only.
#pragma once
#include <string>
#include <vector>

#include <llvm/IR/IRBuilder.h>

namespace ws::cpu {

using Values = std::vector<llvm::Value*>;

class IrLoops {
 public:
  explicit IrLoops(llvm::IRBuilder<>& ir) : ir_(ir) {}

  /// for (i = begin; i < end; i += step) carried = body(i, carried); gives what is carried out.
  template <class Body>
  Values loop(const char* name, llvm::Value* begin, llvm::Value* end, int64_t step, Values carried, Body&& body) {
    carried.insert(carried.begin(), begin);
    Values out = while_loop(
        name, std::move(carried), [&](const Values& v) { return ir_.CreateICmpSLT(v[0], end); },
        [&](const Values& v) {
          Values next = body(v[0], Values(v.begin() + 1, v.end()));
          next.insert(next.begin(), ir_.CreateAdd(v[0], ir_.getInt64(static_cast<uint64_t>(step))));
          return next;
        });
    out.erase(out.begin());
    return out;
  }

  /// while (condition(carried)) carried = body(carried); the test is placed once before the loop and once at its end.
  template <class Condition, class Body>
  Values while_loop(const char* name, Values carried, Condition&& condition, Body&& body) {
    llvm::BasicBlock* before = ir_.GetInsertBlock();
    llvm::BasicBlock* head = block(name);
    llvm::BasicBlock* done = block(std::string(name) + ".end");
    ir_.CreateCondBr(condition(carried), head, done);
    ir_.SetInsertPoint(head);
    Values inside;
    for (llvm::Value* v : carried) {
      llvm::PHINode* phi = ir_.CreatePHI(v->getType(), 2);
      phi->addIncoming(v, before);
      inside.push_back(phi);
    }
    const Values next = body(inside);
    llvm::BasicBlock* latch = ir_.GetInsertBlock();
    for (size_t i = 0; i < next.size(); ++i) llvm::cast<llvm::PHINode>(inside[i])->addIncoming(next[i], latch);
    ir_.CreateCondBr(condition(next), head, done);
    return join(done, carried, before, next, latch);
  }

  /// if (condition) carried = body(); gives the carried values after it.
  template <class Body>
  Values if_then(const char* name, llvm::Value* condition, const Values& otherwise, Body&& body) {
    llvm::BasicBlock* before = ir_.GetInsertBlock();
    llvm::BasicBlock* then = block(name);
    llvm::BasicBlock* done = block(std::string(name) + ".end");
    ir_.CreateCondBr(condition, then, done);
    ir_.SetInsertPoint(then);
    const Values values = body();
    llvm::BasicBlock* last = ir_.GetInsertBlock();
    ir_.CreateBr(done);
    return join(done, otherwise, before, values, last);
  }

  template <class Then, class Else>
  void if_then_else(const char* name, llvm::Value* condition, Then&& then, Else&& otherwise) {
    llvm::BasicBlock* yes = block(name);
    llvm::BasicBlock* no = block(std::string(name) + ".else");
    llvm::BasicBlock* done = block(std::string(name) + ".end");
    ir_.CreateCondBr(condition, yes, no);
    ir_.SetInsertPoint(yes);
    then();
    ir_.CreateBr(done);
    ir_.SetInsertPoint(no);
    otherwise();
    ir_.CreateBr(done);
    ir_.SetInsertPoint(done);
  }

 private:
  llvm::BasicBlock* block(const std::string& name) {
    return llvm::BasicBlock::Create(ir_.getContext(), name, ir_.GetInsertBlock()->getParent());
  }
  Values join(llvm::BasicBlock* done, const Values& a, llvm::BasicBlock* from_a, const Values& b, llvm::BasicBlock* from_b) {
    ir_.SetInsertPoint(done);
    Values out;
    for (size_t i = 0; i < a.size(); ++i) {
      llvm::PHINode* phi = ir_.CreatePHI(a[i]->getType(), 2);
      phi->addIncoming(a[i], from_a);
      phi->addIncoming(b[i], from_b);
      out.push_back(phi);
    }
    return out;
  }

  llvm::IRBuilder<>& ir_;
};

}  // namespace ws::cpu
