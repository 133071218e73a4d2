// A table with a line under its head; columns as wide as their widest cell, the first one left-aligned, the others right.
#pragma once
#include <string>
#include <vector>

namespace ws {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> head) : rows_{std::move(head)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string str() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace ws
