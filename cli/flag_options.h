// The flags of support/flags.h on the command line and in the environment: their options, and what is checked of them first.
#pragma once
#include <CLI/CLI.hpp>

namespace ws::cli {

void add_flag_options(CLI::App& app);

/// An Error where a flag whose values are names has one that is not known: it would silently do nothing.
void check_flag_names();

/// An Error where what flags name to be written cannot be: found now and not when the work is done.
void check_flag_places();

/// One line that names the variables WHOLESTEP_* which are no flags, and what each may be meant to be.
void warn_of_unknown_variables();

}  // namespace ws::cli
