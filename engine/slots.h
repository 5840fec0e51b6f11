// Functions that higher folders give to the engine, which may not know them: inspect/ fills these slots when
// the library is loaded, or with the options of an install().
#pragma once

#include "engine/options.h"

#include <torch/csrc/autograd/anomaly_mode.h>

#include <atomic>
#include <memory>

namespace overdrive::engine {

// Before the engine becomes the default one, on the thread that installs: inspect/ reads OVERDRIVE_TRACE there.
// Its error is install()'s, which then changes nothing: neither engine nor options nor glibc's heap.
using AtInstall = void (*)();
inline constinit std::atomic<AtInstall> at_install{nullptr};

inline void set_at_install(AtInstall function) { at_install.store(function, std::memory_order_release); }
inline void call_at_install() {
  if (const AtInstall function = at_install.load(std::memory_order_acquire)) function();
}

// With the options of every install(), before the engine has them.
using OptionsListener = void (*)(const Options&);
inline constinit std::atomic<OptionsListener> options_listener{nullptr};

inline void call_options_listener(const Options& options) {
  if (const OptionsListener listener = options_listener.load(std::memory_order_acquire)) listener(options);
}

// Makes a node's metadata in anomaly mode, for programs that ask for more than the host's; asked on any thread.
// Leaves Python's metadata alone.
using AnomalySource = std::unique_ptr<torch::autograd::AnomalyMetadata> (*)();
inline constinit std::atomic<AnomalySource> anomaly_source{nullptr};

}  // namespace overdrive::engine
