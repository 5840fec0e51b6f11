// Called with the options of every install(), before the engine has them. Filled once by inspect/, when the
// library is loaded; the function runs on the thread that installs.
#pragma once

#include "engine/options.h"

#include <atomic>

namespace overdrive::engine {

using OptionsListener = void (*)(const Options&);
inline constinit std::atomic<OptionsListener> options_listener{nullptr};

inline void tell_of_options(const Options& options) {
  if (const OptionsListener listener = options_listener.load(std::memory_order_acquire)) listener(options);
}

}  // namespace overdrive::engine
