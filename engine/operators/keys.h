// The dispatch keys that Overdrive borrows: LibTorch keeps each for a purpose that C++ programs do not have.
// One key has one fallback in a process, so a key has one room here. Listed from the first that an operator
// meets to the last; the order is checked below, because each room counts on what comes before it.
#pragma once

#include <c10/core/DispatchKeySet.h>

namespace overdrive::engine::keys {

// For tests of LibTorch's dispatcher. A thread's operators before all others: functional_call() and the rules
// of a pass over jets (forward_ad/drivers/kernel_above_all.h).
inline constexpr c10::DispatchKey kAboveAll = c10::DispatchKey::TESTING_ONLY_GenericMode;
// For the same tests. Rules of forward mode: before functorch's layers (forward_ad/rules/).
inline constexpr c10::DispatchKey kForwardRules = c10::DispatchKey::TESTING_ONLY_GenericWrapper;
// Of an extension that is no longer developed. Writes, before autograd gives a tensor its next version
// (checkpoint/region/write_observer.h).
inline constexpr c10::DispatchKey kWrites = c10::DispatchKey::DeferredInit;
// For a mode of Python's programs. Recordings: below autograd and the keys of views and Python's, above the
// choice of a backend (replay/record/recorder.cpp).
inline constexpr c10::DispatchKey kRecording = c10::DispatchKey::Fake;

static_assert(kAboveAll > kForwardRules && kForwardRules > c10::DispatchKey::FuncTorchDynamicLayerFrontMode &&
                  c10::DispatchKey::FuncTorchDynamicLayerFrontMode > kWrites &&
                  kWrites > c10::DispatchKey::AutogradFunctionality &&
                  c10::DispatchKey::ADInplaceOrView > kRecording &&
                  kRecording > c10::DispatchKey::BackendSelect,
              "Overdrive: this LibTorch has its dispatch keys in another order");

// Before the fallback of one of them is registered: a c10::Error that names the key and what needs it where
// another library of the process has a fallback there. Any thread.
void claim(c10::DispatchKey key);
// The same error for any of them, for install(): later it would come out of a checkpoint or a capture.
void check_are_free();

// Whether operators of the call are recorded. What makes a result without one is not seen.
inline bool is_recording(c10::DispatchKeySet keys) { return keys.has(kRecording); }

}  // namespace overdrive::engine::keys
