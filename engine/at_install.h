// A function that install() calls before the engine becomes the default one. Its error is install()'s, which
// then changes nothing. Filled once, when the library is loaded, by inspect/, which reads OVERDRIVE_TRACE
// there.
#pragma once

#include <atomic>

namespace overdrive::engine {

using AtInstall = void (*)();
inline constinit std::atomic<AtInstall> at_install{nullptr};

inline void set_at_install(AtInstall function) { at_install.store(function, std::memory_order_release); }
inline void call_at_install() {
  if (const AtInstall function = at_install.load(std::memory_order_acquire)) function();
}

}  // namespace overdrive::engine
