#include "engine/install.h"

#include "engine/backward.h"
#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"
#include "engine/devices/worker_group.h"
#include "engine/heap_keeper.h"
#include "engine/host/host_rules.h"
#include "engine/host/host_version.h"
#include "engine/keep_memory.h"
#include "engine/operators/keys.h"
#include "engine/overdrive_engine.h"
#include "engine/python_entry/python_entry.h"
#include "engine/slots.h"

#include <c10/util/Type.h>

#include <atomic>
#include <typeinfo>
#include <vector>

extern "C" uint64_t aoti_torch_abi_version() __attribute__((weak));

namespace overdrive::engine {
namespace {

using base::Engine;
using base::MutexLock;

// The engine that uninstall() put back, unless it is the base engine. LibTorch takes a function and
// tells nobody which one it has, so the engine itself is all we can record.
std::atomic<Engine*> put_back{nullptr};
Engine& engine_put_back() { return *put_back.load(std::memory_order_acquire); }

HostVersion running_version() {
  return aoti_torch_abi_version ? version_from_abi(aoti_torch_abi_version()) : HostVersion{};
}

void check_host() {
  TORCH_CHECK(runs_in(version_from_text(OVERDRIVE_BUILT_FOR_TORCH), running_version()),
              "This Overdrive was built for LibTorch ", built_for_torch(), ", but runs in LibTorch ",
              running_torch(), ". It is bound to the minor version: build it against the one you use.");
}

bool is_ours(const Engine& engine) { return &engine == &OverdriveEngine::get(); }

// Stands in for Engine::execute() where Python's engine calls it.
base::variable_list execute_for_python(Engine* self, const base::edge_list& roots,
                                       const base::variable_list& gradients, bool keep_graph, bool create_graph,
                                       bool accumulate_grad, const base::edge_list& outputs) {
  OverdriveEngine& ours = OverdriveEngine::get();
  if (!is_ours(Engine::get_default_engine()) || self != &ours.previous()) {
    return python_entry::stock()(self, roots, gradients, keep_graph, create_graph, accumulate_grad, outputs);
  }
  return ours.serve({roots, gradients, keep_graph, create_graph, accumulate_grad, outputs});
}

void open_python_entry() {
  const std::string problem = python_entry::open(&execute_for_python);
  TORCH_CHECK(problem.empty(), problem);
}

// Note [Loader's lock]: the loader holds a lock while it runs the constructors of a library, and dlopen(),
// dlsym() and dladdr() take that lock. A constructor may install. So a thread must not call the loader while it
// holds a lock that install() takes, or it waits for the constructor, and the constructor waits for the thread.
// install() asks the loader first, then locks, then looks whether the answer still holds.

// The default engine, and whether it is Python's.
struct EngineSeen {
  Engine& engine;
  bool is_python;
};
EngineSeen see_default_engine() {
  Engine& now = Engine::get_default_engine();
  return {now, host::is_python_engine(now)};
}

// Every change of the default engine comes through here, one at a time. Under the lock run only LibTorch's
// two-line accessors, the engine's own setters and the listener of the options. See Note [Loader's lock].
class Switch {
 public:
  static Switch& get() {
    static base::NoDestructor<Switch> instance;
    return *instance;
  }

  void on(const Options& options) OVERDRIVE_EXCLUDES(mutex_) {
    prepare();
    while (true) {
      const EngineSeen seen = see_default_engine();
      const MutexLock lock(mutex_);
      if (!is_default(seen)) continue;
      turn_on(options, seen);
      if (!scopes_.empty()) scopes_.back().options = options;
      return;
    }
  }

  // Null, or the engine that is on top of ours.
  const Engine* off() OVERDRIVE_EXCLUDES(mutex_) {
    preloaded_installs_first();
    MutexLock lock(mutex_);
    return turn_off();
  }

  // The number of the scope, for leave_scope().
  uint64_t enter_scope(const Options& options) OVERDRIVE_EXCLUDES(mutex_) {
    prepare();
    while (true) {
      const EngineSeen seen = see_default_engine();
      const MutexLock lock(mutex_);
      if (!is_default(seen)) continue;
      scopes_.reserve(scopes_.size() + 1);  // nothing throws once the engine is on
      const Before before{is_ours(seen.engine), options_};
      turn_on(options, seen);
      if (scopes_.empty()) before_scopes_ = before;
      scopes_.push_back({++last_scope_, options});
      return last_scope_;
    }
  }

  const Engine* leave_scope(uint64_t number) OVERDRIVE_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    std::erase_if(scopes_, [number](const Scope& scope) { return scope.number == number; });
    set_options(scopes_.empty() ? before_scopes_.options : scopes_.back().options);
    return scopes_.empty() && !before_scopes_.on ? turn_off() : nullptr;
  }

 private:
  // A scope that lives. install() inside of scopes gives the youngest one other options.
  struct Scope {
    uint64_t number;
    Options options;
  };
  struct Before {
    bool on = false;
    Options options;
  };

  // What may fail comes first, so that a failing install() has changed nothing.
  static void prepare() {
    preloaded_installs_first();
    open_python_entry();
    call_at_install();
  }
  // In a process that preloads liboverdrive_autoload, the first call of get_default_engine() calls install(),
  // which enters this class. The call must happen before this class locks its mutex.
  static void preloaded_installs_first() { Engine::get_default_engine(); }
  static bool is_default(const EngineSeen& seen) { return &seen.engine == &Engine::get_default_engine(); }

  void set_options(const Options& options) OVERDRIVE_REQUIRES(mutex_) {
    if (options == options_) return;
    options_ = options;
    OverdriveEngine::get().set_options(options);
  }

  void turn_on(const Options& options, const EngineSeen& seen) OVERDRIVE_REQUIRES(mutex_) {
    call_options_listener(options);
    set_options(options);
    Engine& now = seen.engine;
    if (is_ours(now)) return;
    // An engine that came on top of ours may call ours for what it does not do itself. Were we
    // to call it in turn, such a call would go round for ever, so we stay with the one below.
    // LibTorch's own engines call nobody, and Python's must be asked for its hooks.
    const bool may_call_us = below_ && &now != &Engine::get_base_engine() && !seen.is_python;
    if (!may_call_us) OverdriveEngine::get().set_previous({now, seen.is_python});
    below_ = &now;
    torch::autograd::set_default_engine_stub(&OverdriveEngine::stub);
  }

  const Engine* turn_off() OVERDRIVE_REQUIRES(mutex_) {
    Engine& now = Engine::get_default_engine();
    if (!is_ours(now)) {
      if (below_ && &now != below_) return &now;
      below_ = nullptr;
      return nullptr;
    }
    // Code that had recorded our engine may have put it back after uninstall().
    Engine& below = below_ ? *below_ : OverdriveEngine::get().previous();
    if (&below == &Engine::get_base_engine()) {
      torch::autograd::set_default_engine_stub(&Engine::get_base_engine);
    } else {
      put_back.store(&below, std::memory_order_release);
      torch::autograd::set_default_engine_stub(&engine_put_back);
    }
    below_ = nullptr;
    return nullptr;
  }

  base::ProcessMutex mutex_{"switch"};
  // The engine that uninstall() puts back; null when we are not installed.
  Engine* below_ OVERDRIVE_GUARDED_BY(mutex_) = nullptr;
  Options options_ OVERDRIVE_GUARDED_BY(mutex_);
  std::vector<Scope> scopes_ OVERDRIVE_GUARDED_BY(mutex_);  // the youngest last; its options hold
  uint64_t last_scope_ OVERDRIVE_GUARDED_BY(mutex_) = 0;
  Before before_scopes_ OVERDRIVE_GUARDED_BY(mutex_);  // as the oldest scope found it
};

// What an installed engine holds of the process: threads, and memory that glibc would have given back.
void give_back() {
  WorkerGroup::retire_all();
  HeapKeeper::get().end_install();
}

std::string owner(const Engine& engine) {
  if (is_ours(engine)) return "overdrive";
  if (&engine == &Engine::get_base_engine()) return "base";
  if (host::is_python_engine(engine)) return "python";
  return "unknown (" + c10::demangle(typeid(engine).name()) + ")";
}

// Once a process. A misspelt name is silently without effect otherwise.
void warn_of_unknown_variables() {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  for (const std::string& complaint : unknown_environment_variables()) TORCH_WARN(complaint);
}

// Outside the lock: a warning runs the program's own handler.
bool nobody_on_top(const Engine* on_top) {
  if (on_top) {
    TORCH_WARN("Overdrive was not uninstalled: since it was installed, another engine became the default: ",
               owner(*on_top), ". Take that one off first.");
  }
  return !on_top;
}

}  // namespace

namespace {
// Options of a program can hold values that no variable of the environment gives.
void check(const Options& options) {
  const auto threads = static_cast<int>(options.threads), exact = static_cast<int>(options.exact);
  TORCH_CHECK(threads >= 0 && threads <= static_cast<int>(Threads::kDevice), "Options::threads is ", threads,
              ", which is none of kAuto, kCaller and kDevice.");
  TORCH_CHECK(exact >= 0 && exact <= static_cast<int>(Exact::kAlways), "Options::exact is ", exact,
              ", which is neither kAuto nor kAlways.");
  TORCH_CHECK(options.check_every >= 0, "Options::check_every is ", options.check_every,
              "; it takes n for every n-th backward, and 0 for none.");
  constexpr size_t kMostMib = kMostKeptMemory >> 20;
  TORCH_CHECK(options.keep_memory_mib >= -1 && options.keep_memory_mib <= static_cast<int>(kMostMib),
              "Options::keep_memory_mib is ", options.keep_memory_mib, "; it takes up to ", kMostMib,
              " MiB, 0 to leave glibc as it is, and -1 for Overdrive's own choice.");
}

void check_before_install(const Options& options) {
  check(options);
  check_host();
  keys::check_are_free();
  warn_of_unknown_variables();
}

}  // namespace

void install(const Options& options) {
  check_before_install(options);
  Switch::get().on(options);
  HeapKeeper::get().begin_install(options.keep_memory_mib);
}

bool uninstall() {
  const Engine* on_top = Switch::get().off();
  if (on_top == nullptr) give_back();
  return nobody_on_top(on_top);
}
bool installed() { return is_ours(Engine::get_default_engine()); }
std::string default_engine_owner() { return owner(Engine::get_default_engine()); }

std::string built_for_torch() { return OVERDRIVE_BUILT_FOR_TORCH; }

std::string running_torch() {
  const HostVersion version = running_version();
  if (version == HostVersion{}) return "(before 2.10)";
  return c10::str(version.major, ".", version.minor, ".", version.patch);
}

ScopedInstall::ScopedInstall(const Options& options)
    : number_((check_before_install(options), Switch::get().enter_scope(options))) {
  HeapKeeper::get().begin_install(options.keep_memory_mib);
}
ScopedInstall::~ScopedInstall() {
  const Engine* on_top = Switch::get().leave_scope(number_);
  if (!installed()) give_back();
  try {
    nobody_on_top(on_top);
  } catch (...) {  // the program's warning handler threw, which a destructor cannot pass on
  }
}

}  // namespace overdrive::engine
