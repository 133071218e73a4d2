// Everything a user of wholestep needs.
#pragma once
#include "wholestep/analysis.h"      // IWYU pragma: export
#include "wholestep/attention.h"     // IWYU pragma: export
#include "wholestep/data.h"          // IWYU pragma: export
#include "wholestep/distributed.h"   // IWYU pragma: export
#include "wholestep/initializers.h"  // IWYU pragma: export
#include "wholestep/jit.h"           // IWYU pragma: export
#include "wholestep/layers.h"        // IWYU pragma: export
#include "wholestep/losses.h"        // IWYU pragma: export
#include "wholestep/models.h"        // IWYU pragma: export
#include "wholestep/module.h"        // IWYU pragma: export
#include "wholestep/optimizers.h"    // IWYU pragma: export
#include "wholestep/precision.h"     // IWYU pragma: export
#include "wholestep/random.h"        // IWYU pragma: export
#include "wholestep/recompute.h"     // IWYU pragma: export
#include "wholestep/schedules.h"     // IWYU pragma: export
#include "wholestep/tensor.h"        // IWYU pragma: export
#include "wholestep/trainer.h"       // IWYU pragma: export
