// Which engine runs the backwards of a stretch of code. Used by everything that measures or
// compares; switches the whole process, so one at a time. Knows nothing of what is measured.
#pragma once

#include "engine/engine.h"

#include <optional>
#include <string>

namespace overdrive::bench {

enum class EngineKind { kStock, kOverdrive };

inline const char* name(EngineKind kind) { return kind == EngineKind::kStock ? "stock" : "overdrive"; }

// Throws c10::Error for anything but "stock" and "overdrive".
EngineKind parse_engine(const std::string& text);

// From its construction to its end, backwards of this process run on `kind`.
class UseEngine {
 public:
  explicit UseEngine(EngineKind kind);
  ~UseEngine();
  UseEngine(const UseEngine&) = delete;
  UseEngine& operator=(const UseEngine&) = delete;

 private:
  const bool was_installed_;
};

}  // namespace overdrive::bench
