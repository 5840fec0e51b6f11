// Switching Overdrive on and off. Any thread may call these at any moment; a
// backward that is under way finishes on the engine that began it.
#pragma once

#include "engine/base/export.h"
#include "engine/options.h"

#include <cstdint>
#include <string>

namespace overdrive::engine {

// Makes Overdrive the default engine. Installing twice is one install (the options
// of the second call take effect). Throws c10::Error when the running LibTorch is
// not the one that Overdrive was built for.
OVERDRIVE_API void install(const Options& options = Options::from_environment());

// Puts back the engine that was the default before install(). Returns false, warns
// and changes nothing when somebody installed another engine on top of ours;
// returns true, having done nothing, when Overdrive is not installed.
OVERDRIVE_API bool uninstall();

// True when the default engine is ours now.
OVERDRIVE_API bool installed();

// The name of the default engine, for people: "overdrive", "base", "python" or
// "unknown (TYPE)".
OVERDRIVE_API std::string default_engine_owner();

// The LibTorch version that this library was built for, and the one it runs in.
OVERDRIVE_API std::string built_for_torch();
OVERDRIVE_API std::string running_torch();

// Installs in the constructor; puts the engine and the options back as they were in
// the destructor. Scopes may nest and may overlap on several threads: the default
// engine changes when the first begins and when the last ends, and the options of
// the youngest scope that lives hold. install() inside of scopes replaces these.
class OVERDRIVE_API ScopedInstall {
 public:
  explicit ScopedInstall(const Options& options = Options::from_environment());
  ~ScopedInstall();
  ScopedInstall(const ScopedInstall&) = delete;
  ScopedInstall& operator=(const ScopedInstall&) = delete;

 private:
  const uint64_t number_;
};

}  // namespace overdrive::engine
