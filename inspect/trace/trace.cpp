#include "inspect/trace/trace.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"
#include "engine/check_installed.h"
#include "engine/run/watchers.h"
#include "engine/slots.h"
#include "inspect/cost/live_bytes.h"
#include "inspect/trace/auxiliary_trace.h"
#include "inspect/trace/forward_ops.h"
#include "inspect/trace/trace_run.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <optional>
#include <utility>

namespace overdrive::inspect {

class TraceWatcher final : public engine::Watcher {
 public:
  TraceWatcher(std::shared_ptr<TraceFile> file, bool live_bytes)
      : file_(std::move(file)), live_bytes_(live_bytes) {}
  std::unique_ptr<engine::RunWatch> watch(const engine::RunFacts& facts) override {
    return std::make_unique<TraceRun>(file_, facts, live_bytes_);
  }

 private:
  const std::shared_ptr<TraceFile> file_;
  const bool live_bytes_;
};

struct Trace::Parts {
  Parts(const char* source, std::string path, TraceOptions options)
      : file(std::make_shared<TraceFile>(source, std::move(path))),
        watcher(std::make_shared<TraceWatcher>(file, options.live_bytes)) {
    if (options.live_bytes) live_bytes.emplace();
    if (options.forward) forward.emplace(file);
    side.emplace(file);
    engine::add_watcher(watcher);
  }
  std::string finish() {
    engine::remove_watcher(*watcher);
    side.reset();
    forward.reset();
    live_bytes.reset();
    return file->finish();
  }

  const std::shared_ptr<TraceFile> file;
  const std::shared_ptr<TraceWatcher> watcher;
  std::optional<LiveBytes> live_bytes;
  std::optional<ForwardOps> forward;
  std::optional<SideTrace> side;
};

Trace::Trace(std::string file, TraceOptions options) {
  engine::check_installed("A trace shows backwards on Overdrive");
  parts_ = std::make_unique<Parts>("The file of a trace", std::move(file), options);
}

Trace::~Trace() {
  try {
    close();
  } catch (const std::exception& error) {
    try {
      TORCH_WARN(error.what());
    } catch (...) {  // the program's warning handler threw, which a destructor cannot pass on
    }
  }
}

void Trace::close() {
  const std::unique_ptr<Parts> parts = std::move(parts_);
  if (parts == nullptr) return;
  const std::string error = parts->finish();
  TORCH_CHECK(error.empty(), "A part of a trace could not be written: ", error, ".");
}

namespace {

// OVERDRIVE_TRACE: one trace from the first install() to the end of the process. Forward operators are those of
// the thread that installs.
void trace_as_environment_says() {
  static base::NoDestructor<base::ProcessMutex> mutex("OVERDRIVE_TRACE");
  static TraceFile* file = nullptr;
  const char* path = std::getenv("OVERDRIVE_TRACE");
  if (path == nullptr || *path == '\0') return;
  const base::MutexLock lock(*mutex);
  if (file != nullptr) return;
  auto made = std::make_shared<TraceFile>("OVERDRIVE_TRACE", path);
  engine::add_watcher(std::make_shared<TraceWatcher>(made, true));
  static base::NoDestructor<LiveBytes> live_bytes;
  static base::NoDestructor<ForwardOps> forward(made);
  static base::NoDestructor<SideTrace> side(made);
  file = made.get();
  std::atexit([] { file->finish(); });
}

[[maybe_unused]] const bool reads_environment = (engine::set_at_install(&trace_as_environment_says), true);

}  // namespace

}  // namespace overdrive::inspect
