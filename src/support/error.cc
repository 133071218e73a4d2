#include "support/error.h"

namespace ws {

void internal_failure(const char* file, int line, const char* condition, const std::string& message) {
  throw InternalError(fmt::format("internal error at {}:{}: {} does not hold{}{} (please report this)", file, line, condition,
                                  message.empty() ? "" : ": ", message));
}

}  // namespace ws
