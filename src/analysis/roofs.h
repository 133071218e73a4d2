// Measuring the roofs (wholestep/analysis.h) and keeping them on disk.
#pragma once
#include <string>

#include "support/json.h"
#include "wholestep/analysis.h"

namespace ws {

/// Measures on the process's thread pool: about two seconds. Neighbours disturb it, so every probe takes the best of several
/// short runs. Throws ws::Error on a machine without AVX2.
Roofs measure_roofs(int num_threads);

Json to_json(const Roofs& roofs);
/// Throws ws::Error naming the file for a JSON that is no Roofs.
Roofs roofs_from_json(const Json& json, const std::string& file);

/// The roofs saved in `file` if they are of this machine and thread count; else measures and saves them. A file that cannot be
/// read or written is ignored: it is a cache.
Roofs cached_roofs(const std::string& file, int num_threads, bool fresh = false);

}  // namespace ws
