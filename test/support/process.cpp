#include "test/support/process.h"

#include "test/support/pch.h"

#include <link.h>
#include <pthread.h>

#include <exception>
#include <filesystem>

namespace overdrive::test {

int thread_count() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

namespace {

struct Job {
  const std::function<void()>& body;
  std::exception_ptr error;
};

void* run_job(void* argument) {
  auto& job = *static_cast<Job*>(argument);
  try {
    job.body();
  } catch (...) {
    job.error = std::current_exception();
  }
  return nullptr;
}

// What the thread-locals of all libraries take: they lie on a new thread's stack, 230 KiB of it with the CUDA
// libraries.
size_t bytes_of_thread_locals() {
  size_t bytes = 0;
  const auto add = [](dl_phdr_info* library, size_t, void* sum) {
    for (int i = 0; i < library->dlpi_phnum; ++i) {
      const auto& segment = library->dlpi_phdr[i];
      if (segment.p_type == PT_TLS) *static_cast<size_t*>(sum) += segment.p_memsz + segment.p_align;
    }
    return 0;
  };
  dl_iterate_phdr(add, &bytes);
  return bytes;
}

}  // namespace

void on_stack_of(size_t bytes, const std::function<void()>& body) {
  Job job{body, nullptr};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, bytes + bytes_of_thread_locals());
  pthread_t thread;
  const int failed = pthread_create(&thread, &attributes, run_job, &job);
  pthread_attr_destroy(&attributes);
  TORCH_CHECK(!failed, "cannot start a thread with a stack of ", bytes, " bytes");
  pthread_join(thread, nullptr);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace overdrive::test
