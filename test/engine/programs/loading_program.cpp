// loading_program WHAT: one thread does WHAT while another loads a library whose constructor installs. The
// first thread begins when the constructor runs, and the constructor goes on when that thread has finished or
// sleeps on a lock. Exit status 0 when both come to an end.
#include "engine/engine.h"

#include "test/support/pch.h"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <future>
#include <string>
#include <thread>

namespace {

std::promise<void> is_loading;
std::atomic<bool> done{false};
std::atomic<long> thread_id{0};

bool sleeps(long thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string pid, name, state;
  stat >> pid >> name >> state;
  return state == "S";
}

void wait_until_it_is_stuck_or_done() {
  constexpr int kInARow = 20;
  for (int asleep = 0; asleep < kInARow && !done;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    asleep = sleeps(thread_id) ? asleep + 1 : 0;
  }
}

void first_install() { overdrive::install(); }
void later_install() { overdrive::install({.check_every = 3}); }
void scoped_install() { const overdrive::ScopedInstall scope; }
void keep_memory() { overdrive::keep_memory(size_t{64} << 20); }

struct What {
  const char* name;
  void (*call)();
  bool installed_before;
};
const What kWhat[] = {{"first_install", first_install, false},
                      {"later_install", later_install, true},
                      {"scoped_install", scoped_install, true},
                      {"keep_memory", keep_memory, false}};

void run(const What& what) {
  if (what.installed_before) {
    overdrive::install();
    overdrive::uninstall();
  }
  std::thread first([&] {
    is_loading.get_future().wait();
    thread_id = syscall(SYS_gettid);
    what.call();
    done = true;
  });
  void* const library = dlopen(OVERDRIVE_LOADING_PLUGIN, RTLD_NOW);
  if (library == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  first.join();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void called_while_loading() {
  is_loading.set_value();
  while (thread_id == 0) std::this_thread::yield();
  wait_until_it_is_stuck_or_done();
  overdrive::install();
}

int main(int argc, char** argv) {
  alarm(30);
  for (const What& what : kWhat) {
    if (argc == 1) {
      std::printf("%s\n", what.name);
    } else if (std::strcmp(argv[1], what.name) == 0) {
      run(what);
      return overdrive::uninstall() ? 0 : 3;
    }
  }
  return argc == 1 ? 0 : 2;
}
