// What this machine is called, for reports.
#pragma once
#include <string>

namespace ws {

/// The processor's model name; "unknown" where the system does not say.
std::string cpu_model();

}  // namespace ws
