#include "checkpoint/ahead/ahead_thread.h"

#include "engine/base/no_destructor.h"

#include <pthread.h>

#include <cstdlib>
#include <system_error>
#include <utility>

namespace overdrive::checkpoint {

AheadThread& AheadThread::get() {
  static base::NoDestructor<AheadThread> thread;
  return *thread;
}

AheadThread::AheadThread() {
  pthread_atfork(hold, let_go, let_go);
  std::atexit([] {
    get().ending_ = true;
    get().thread_.stop();
  });
}

void AheadThread::order(std::shared_ptr<AheadRun> run) {
  try {
    thread_.push([this, run = std::move(run)] {
      if (ending_ || !run->is_wanted()) return;
      run->surroundings().take_over();
      run->run();
    });
  } catch (const std::system_error&) {  // no thread: the node will do it in its turn
  }
}

void AheadThread::hold() { get().thread_.hold(); }
void AheadThread::let_go() { get().thread_.let_go(); }

}  // namespace overdrive::checkpoint
