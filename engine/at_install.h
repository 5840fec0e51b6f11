// Functions that install() calls. Filled once, when the library is loaded, by inspect/; they run on the thread
// that installs.
#pragma once

#include "engine/options.h"

#include <atomic>

namespace overdrive::engine {

// Before the engine becomes the default one: inspect/ reads OVERDRIVE_TRACE there. Its error is install()'s,
// which then changes nothing.
using AtInstall = void (*)();
inline constinit std::atomic<AtInstall> at_install{nullptr};

inline void set_at_install(AtInstall function) { at_install.store(function, std::memory_order_release); }
inline void call_at_install() {
  if (const AtInstall function = at_install.load(std::memory_order_acquire)) function();
}

// With the options of every install(), before the engine has them.
using OptionsListener = void (*)(const Options&);
inline constinit std::atomic<OptionsListener> options_listener{nullptr};

inline void tell_of_options(const Options& options) {
  if (const OptionsListener listener = options_listener.load(std::memory_order_acquire)) listener(options);
}

}  // namespace overdrive::engine
