// Stands in for what the C and C++ libraries of 2018 lack, so that the library loads there. The rest is the
// linker's task (cmake/OverdriveOlderSystems.cmake). Nothing here is exported.
#include <dlfcn.h>
#include <pthread.h>
#include <sys/single_threaded.h>

#include <condition_variable>
#include <sstream>
#include <string>

// GCC 12 gave the function a new version, and the compiled headers name the newest. Weak, so that an archive of
// newer functions, which some compilers for older systems link in, may have its own.
[[gnu::weak]] void std::condition_variable::wait(std::unique_lock<std::mutex>& lock) {
  pthread_cond_wait(native_handle(), lock.mutex()->native_handle());
}

// GCC 11 split the function in two for C++20. Some versions of LibTorch export one of the two, LibTorch 2.11
// exports none.
#if defined(__GLIBCXX__) && _GLIBCXX_RELEASE >= 11
template std::string std::basic_stringbuf<char>::str() const&;
template std::string std::basic_stringbuf<char>::str() &&;
template std::string std::basic_ostringstream<char>::str() const&;
template std::string std::basic_ostringstream<char>::str() &&;
#endif

namespace overdrive_older_systems {
namespace {

// A glibc without the flag counts as one with several threads.
constexpr char kSeveral = 0;

}  // namespace

// Initialisers of other files may read it before the one below has run, so it is never null.
constinit const char* single_threaded = &kSeveral;

namespace {

[[maybe_unused]] const bool kLooked = [] {
  // As a string, because the name itself is a macro here.
  if (const void* flag = dlsym(RTLD_DEFAULT, "__libc_single_threaded"))
    single_threaded = static_cast<const char*>(flag);
  return true;
}();

}  // namespace
}  // namespace overdrive_older_systems
