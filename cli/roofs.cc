// roofs: what this machine can do at best: the yardstick of "share of the roof". Measured once, then kept on disk.
#include "analysis/roofs.h"

#include <fmt/core.h>

#include "command.h"

namespace ws::cli {

void add_roofs(CLI::App& app, Action& action) {
  struct Options {
    bool json = false, fresh = false;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = add_command(app, "roofs", "peaks, bandwidth by level, barrier and dispatch of this machine, measured once");
  command->add_flag("--fresh", o->fresh, "measure again instead of reading what was measured before");
  add_json_option(command, o->json);
  command->callback([o, &action] {
    action = [o] {
      const Roofs roofs = machine_roofs(0, o->fresh);
      if (o->json)
        print_json(to_json(roofs));
      else
        fmt::print("{}", roofs.text());
      return 0;
    };
  });
}

}  // namespace ws::cli
