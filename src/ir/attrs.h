// Attributes of a node: a small sorted map from name to a constant known at trace time.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "wholestep/dtype.h"

namespace ws {

using AttrValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, DType>;

class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, AttrValue>> items);
  /// Keeps names sorted; replaces.
  void set(std::string_view name, AttrValue value);
  const AttrValue* find(std::string_view name) const;
  /// Each throws InternalError where the name is missing or of another kind; the verifier runs first on parsed text.
  bool flag(std::string_view name) const;
  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  const std::vector<int64_t>& integers(std::string_view name) const;
  DType dtype(std::string_view name) const;

  bool empty() const { return items_.empty(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool operator==(const Attrs&) const;  // doubles by bits, so that NaN equals itself and -0 differs from 0
  size_t hash() const;
  /// "{axis = 1, keepdims = true}" with names sorted, doubles round-trip exactly; "" when empty.
  std::string str() const;

 private:
  std::vector<std::pair<std::string, AttrValue>> items_;
};

}  // namespace ws
