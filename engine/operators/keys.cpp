#include "engine/operators/keys.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>

namespace overdrive::engine::keys {
namespace {

struct Borrowed {
  c10::DispatchKey key;
  const char* what_for;
  std::atomic<bool> ours{false};
};

Borrowed borrowed[] = {{kAboveAll, "functional_call() and Taylor series"},
                       {kForwardRules, "derivatives in forward mode"},
                       {kWrites, "checkpoints"},
                       {kRecording, "captured steps"}};

void check_is_free(const Borrowed& one) {
  const bool taken = !one.ours && c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(one.key);
  TORCH_CHECK(!taken, "Another library of this process has a fallback for LibTorch's dispatch key ", one.key,
              ", which Overdrive borrows for ", one.what_for,
              ". A process has one fallback for each key, so it cannot have both.");
}

}  // namespace

void claim(c10::DispatchKey key) {
  for (Borrowed& one : borrowed) {
    if (one.key != key) continue;
    check_is_free(one);
    one.ours = true;
  }
}

void check_are_free() {
  for (const Borrowed& one : borrowed) check_is_free(one);
}

}  // namespace overdrive::engine::keys
