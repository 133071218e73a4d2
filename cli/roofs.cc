// roofs: what this machine can do at best, measured now: the yardstick of "share of the roof".
#include "analysis/roofs.h"

#include <fmt/core.h>

#include "command.h"
#include "support/flags.h"

namespace ws::cli {

void add_roofs(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = add_command(app, "roofs", "measures fp32 peak, bandwidth by level, barrier and dispatch");
  add_json_option(command, *json);
  command->callback([json, &action] {
    action = [json] {
      Roofs roofs = measure_roofs(configured_threads());
      if (*json)
        print_json(to_json(roofs));
      else
        fmt::print("{}", print(roofs));
      return 0;
    };
  });
}

}  // namespace ws::cli
