#include "engine/stats.h"

namespace overdrive::engine {

Stats stats() { return {}; }
void reset_stats() {}
std::string stats_json() { return "{}"; }

}  // namespace overdrive::engine
