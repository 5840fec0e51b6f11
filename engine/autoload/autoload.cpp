// liboverdrive_autoload.so: brings Overdrive to a program that knows nothing of it, by LD_PRELOAD
// or by one dlopen(). Linked with the C library only, and it never loads LibTorch: in a process
// without LibTorch its whole work is one look at the list of loaded objects.
//
// Any thread may be the one that installs; exactly one does, and nobody waits for it.
#include "engine/base/environment.h"
#include "engine/base/loaded_objects.h"
#include "engine/host/host_version.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

// Note [A LibTorch that comes later]: a program that is preloaded into may load LibTorch at any later time, by
// dlopen() of LibTorch or of something that needs it. We learn of it where it matters: this library defines
// LibTorch's Engine::get_default_engine() and, preloaded, is found before LibTorch's own by every object of the
// process, LibTorch's included, which asks it for each backward and each saved tensor. The first
// call installs Overdrive; all pass on to LibTorch's own function. By then LibTorch is loaded and
// its constructors have run, for whoever calls is using it.
//
// Considered instead: interposing dlopen(). The loader takes the search path of a plain name from the
// object that called it, which would then be this library and not the program's, so that dlopen() calls
// which depend on a RUNPATH would fail in programs that have nothing to do with us. And when it returns
// to us inside a constructor of LibTorch's, LibTorch is mapped but not ready.
//
// Not reached: a LibTorch that is loaded with RTLD_DEEPBIND, by dlmopen() or that was linked with
// -Bsymbolic. There overdrive_install() has to be called.
#define OVERDRIVE_HOST_GETTER "_ZN5torch8autograd6Engine18get_default_engineEv"
extern "C" __attribute__((visibility("default"))) void* overdrive_get_default_engine() __asm__(
    OVERDRIVE_HOST_GETTER);

namespace {

using overdrive::engine::HostVersion;
using EngineGetter = void* (*)();
using Install = int (*)();
using LastError = const char* (*)();
using Text = int (*)(char*, size_t);

std::atomic<EngineGetter> host_getter{nullptr};
std::atomic<bool> begun{false};
std::atomic<Text> summary{nullptr};   // set when there is something to say at exit
std::atomic<Text> counters{nullptr};  // the same
std::atomic<bool> is_fork{false};     // of a process that had the engine
char our_folder[PATH_MAX];

template <typename Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(dlsym(library, name));
}

// One write, so that lines of several processes do not mix.
template <typename... Args>
void say(const char* format, Args... args) {
  char line[4096];
  const int length = snprintf(line, sizeof line, format, args...);
  if (length < 0) return;
  const size_t size = static_cast<size_t>(length) < sizeof line ? static_cast<size_t>(length) : sizeof line - 1;
  line[size - 1] = '\n';  // also of a line that was cut
  if (write(STDERR_FILENO, line, size) < 0) return;
}

void say_not_installed(const char* why) { say("overdrive: not installed, the stock engine stays: %s\n", why); }

bool is_set_to(const char* name, const char* value) {
  const char* now = getenv(name);
  return now && strcmp(now, value) == 0;
}

bool is_verbose() { return is_set_to("OVERDRIVE_VERBOSE", "1") || is_set_to("OVERDRIVE_VERBOSE", "2"); }

// A variable that is set to nothing counts as not set. A program must not die for an engine: with a bad value
// stock stays, and a line says so, verbose or not.
bool has_bad_value(const overdrive::base::EnvironmentVariable& variable) {
  const char* value = getenv(variable.name);
  if (!value || !*value || overdrive::base::number_of_value(variable, value) >= 0) return false;
  char why[512];
  overdrive::base::describe_bad_value(variable, value, why, sizeof why);
  say_not_installed(why);
  return true;
}

// OVERDRIVE=0 turns us off. The library, which looks at all values, is not loaded then.
bool wanted() {
  if (has_bad_value(overdrive::base::kEnvironment[0])) return false;
  if (!is_set_to("OVERDRIVE", "0")) return true;
  for (const auto& variable : overdrive::base::kEnvironment) {
    if (has_bad_value(variable)) return false;
  }
  if (is_verbose()) say("overdrive: off, the stock engine stays: %s\n", "OVERDRIVE is 0");
  return false;
}

bool version_fits(void* host) {
  const auto abi_version = find<uint64_t (*)()>(host, "aoti_torch_abi_version");
  const HostVersion running = abi_version ? overdrive::engine::version_from_abi(abi_version()) : HostVersion{};
  if (runs_in(overdrive::engine::version_from_text(OVERDRIVE_BUILT_FOR_TORCH), running)) return true;
  char why[256];
  snprintf(why, sizeof why,
           "it was built for LibTorch " OVERDRIVE_BUILT_FOR_TORCH " and this is LibTorch %d.%d.%d.",
           running.major, running.minor, running.patch);
  say_not_installed(why);
  return false;
}

// The one beside this library, unless the program brought one: there must not be two.
void* open_overdrive() {
  if (void* loaded = dlopen("liboverdrive.so", RTLD_NOW | RTLD_NOLOAD)) return loaded;
  char path[PATH_MAX + sizeof "/liboverdrive.so"];
  snprintf(path, sizeof path, "%s/liboverdrive.so", our_folder);
  // Global makes what Overdrive needs global as well, so only where LibTorch already is.
  const bool host_is_global = dlsym(RTLD_DEFAULT, "aoti_torch_abi_version") != nullptr;
  return dlopen(path, RTLD_NOW | (host_is_global ? RTLD_GLOBAL : RTLD_LOCAL));
}

// A forked process counts from zero. One that ran no backward, as a worker that loads data, has nothing to say.
bool is_silent_fork(const char* sentence) {
  constexpr char kNothing[] = "0 backwards on Overdrive, 0 on stock;";
  return is_fork.load(std::memory_order_relaxed) && strncmp(sentence, kNothing, strlen(kNothing)) == 0;
}

void report_at_exit() {
  char text[3072];
  const Text get_summary = summary.exchange(nullptr);
  const Text get_counters = counters.exchange(nullptr);
  if (get_summary && get_summary(text, sizeof text) >= 0) {
    if (is_silent_fork(text)) return;
    say("overdrive: %s\n", text);
  }
  if (get_counters && get_counters(text, sizeof text) >= 0) say("overdrive: %s\n", text);
}

void install_into(void* host) {
  if (begun.exchange(true) || !wanted() || !version_fits(host)) return;
  void* library = open_overdrive();
  if (!library) return say_not_installed(dlerror());
  const auto install = find<Install>(library, "overdrive_install");
  const auto last_error = find<LastError>(library, "overdrive_last_error");
  const auto sentence = find<Text>(library, "overdrive_stats_summary");
  const auto json = find<Text>(library, "overdrive_stats_json");
  if (!install || !last_error || !sentence || !json)
    return say_not_installed("liboverdrive.so is another version's.");
  if (!install()) return say_not_installed(last_error());
  if (!is_verbose()) return;
  say("overdrive: installed, built for LibTorch %s, from %s\n", OVERDRIVE_BUILT_FOR_TORCH, our_folder);
  summary = sentence;
  if (is_set_to("OVERDRIVE_VERBOSE", "2")) counters = json;
  at_quick_exit(report_at_exit);
  pthread_atfork(nullptr, nullptr, [] { is_fork.store(true, std::memory_order_relaxed); });
}

// LibTorch's own function, from whichever loaded object has it, and that object. The program sees its own
// first, and never us.
EngineGetter find_getter(void** host) {
  EngineGetter getter = nullptr;
  overdrive::base::visit_loaded_objects<&dl_iterate_phdr>([&](const char* path) {
    if (!*path) return false;
    void* const object = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (!object) return false;
    getter = find<EngineGetter>(object, OVERDRIVE_HOST_GETTER);
    if (getter == &overdrive_get_default_engine) getter = nullptr;
    *host = object;
    if (!getter) dlclose(object);
    return getter != nullptr;
  });
  return getter;
}

void* first_call() {
  void* host = nullptr;
  const EngineGetter getter = find_getter(&host);
  if (!getter) {  // somebody calls the function in a process without LibTorch
    say_not_installed("there is no LibTorch whose engine could be asked for.");
    return nullptr;
  }
  host_getter = getter;  // before install_into, which asks for the engine too
  install_into(host);
  return getter();
}

int is_host(dl_phdr_info* info, size_t, void* found) {
  const char* slash = strrchr(info->dlpi_name, '/');
  const char* name = slash ? slash + 1 : info->dlpi_name;
  if (strncmp(name, "libtorch_cpu.so", strlen("libtorch_cpu.so")) != 0) return 0;
  snprintf(static_cast<char*>(found), PATH_MAX, "%s", info->dlpi_name);
  return 1;
}

void remember_our_folder() {
  Dl_info info;
  if (!dladdr(our_folder, &info)) return;
  // A relative path would not survive a chdir() of the program.
  if (*info.dli_fname == '/') {
    snprintf(our_folder, sizeof our_folder, "%s", info.dli_fname);
  } else if (!realpath(info.dli_fname, our_folder)) {
    return;
  }
  if (char* slash = strrchr(our_folder, '/')) *slash = '\0';
}

// When LibTorch is there but its constructors are still to run, opening liboverdrive.so, which
// needs it, runs them first.
__attribute__((constructor)) void at_load() {
  remember_our_folder();
  char path[PATH_MAX];
  if (!dl_iterate_phdr(is_host, path)) return;
  if (void* host = dlopen(path, RTLD_LAZY | RTLD_NOLOAD)) install_into(host);
}

// A destructor of a library runs after the program's own: late backwards are in the report.
__attribute__((destructor)) void at_unload() { report_at_exit(); }

}  // namespace

void* overdrive_get_default_engine() {
  const EngineGetter getter = host_getter.load(std::memory_order_acquire);
  return getter ? getter() : first_call();
}
