#include "engine/overdrive_engine.h"
#include "engine/slots.h"
#include "inspect/errors/forward_frames.h"
#include "inspect/errors/forward_places.h"
#include "inspect/errors/forward_stack.h"
#include "inspect/errors/in_place_writes.h"
#include "inspect/errors/nan_warning.h"
#include "inspect/errors/node_path.h"
#include "inspect/errors/note_store.h"
#include "inspect/errors/releases.h"
#include "inspect/errors/thread_note.h"

namespace overdrive::inspect {
namespace {

using engine::Errors;

bool is_second_backward(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch != nullptr &&
         of_torch->msg().find("backward through the graph a second time") != std::string::npos;
}

std::string note_of(const engine::FailedNode& failed, const std::exception& error, bool nested, Errors detail) {
  base::Node& node = failed.node;
  std::string note = c10::str(nested ? "inside node " : "node ", words_for(node));
  if (const std::string gradients = gradients_of(node); !gradients.empty()) {
    note += c10::str(", for gradients ", gradients);
  }
  if (const std::string path = path_to(failed.index, failed.plan, failed.roots); !path.empty()) {
    note += c10::str("; path ", path);
  }
  if (!nested && is_second_backward(error)) {
    const std::string release = release_of(node);
    note += release.empty() ? "; its saved tensors were released"
                            : c10::str("; its saved tensors were released by ", release);
  }
  if (detail == Errors::kFull) {
    if (const std::string writer = writer_of(error); !nested && !writer.empty()) note += c10::str("; ", writer);
    if (const std::string stack = forward_stack_of(node); !stack.empty()) note += c10::str("; ", stack);
  }
  return note;
}

// A note is a help. No failure to write one may take the error's place.
void describe(const engine::FailedNode& failed, std::exception& error) noexcept {
  try {
    NoteStore& store = NoteStore::get();
    const Errors detail = engine::OverdriveEngine::get().options().errors;
    const engine::ThreadContext& context = engine::thread_context();
    const int32_t depth = context.innermost == nullptr ? 0 : context.innermost->depth;
    const std::string note = note_of(failed, error, store.is_nested(error, depth), detail);
    store.add(error, note, depth, context.worker != nullptr);
    if (detail == Errors::kPlain) return;
    if (auto* of_torch = dynamic_cast<c10::Error*>(&error)) of_torch->add_context("Overdrive: " + note);
  } catch (...) {  // of memory, or of a node's name()
  }
}

void use(const engine::Options& options) {
  engine::OverdriveEngine::get().set_error_describer(&describe);
  const bool full = options.errors == Errors::kFull;
  engine::anomaly_source.store(full ? &ForwardFrames::make : nullptr, std::memory_order_release);
  if (full) record_releases();
  record_forward_places(full);
  record_in_place_writes(full);
  if (options.nan == engine::Nan::kFirst) warn_of_nan();
  if (options.verbose) note_threads();
}

[[maybe_unused]] const bool kFilled = (engine::options_listener.store(&use, std::memory_order_release), true);

}  // namespace
}  // namespace overdrive::inspect
