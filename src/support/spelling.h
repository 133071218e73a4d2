// What a misspelt name may mean. A far-fetched guess is none.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace ws {

/// Letters that are missing, too many, others, or exchanged with their neighbour, where one word should be the other.
int num_slips(std::string_view a, std::string_view b);

/// " (is X meant?)": the known name with the fewest slips, with `prefix` ("--") before it; "" where that is more than one slip in three
/// letters of the name.
std::string spelling_hint(std::string_view name, std::span<const std::string> known, std::string_view prefix = "");

}  // namespace ws
