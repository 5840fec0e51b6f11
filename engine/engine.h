// The entry to the engine folder, and all that most programs need:
//
//   overdrive::install();    // every backward from here on runs on Overdrive
//   overdrive::uninstall();  // and from here on on the engine that was there before
#pragma once

#include "engine/install.h"
#include "engine/keep_memory.h"
#include "engine/options.h"
#include "engine/stats.h"

namespace overdrive {

using engine::install;
using engine::installed;
using engine::keep_memory;
using engine::Options;
using engine::own_node_types;
using engine::reset_stats;
using engine::ScopedInstall;
using engine::stats;
using engine::Stats;
using engine::stats_json;
using engine::stats_summary;
using engine::uninstall;

}  // namespace overdrive
