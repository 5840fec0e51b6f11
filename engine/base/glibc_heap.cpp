#include "engine/base/glibc_heap.h"

#include "engine/base/loaded_objects.h"

#include <dlfcn.h>
#include <link.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <thread>

namespace overdrive::base {

#ifdef __GLIBC__

namespace {

constexpr size_t kInitialThreshold = size_t{128} << 10;  // of all three, before glibc has learned
constexpr size_t kUnit = size_t{64} << 10;               // the largest page that Linux has on our processors

// A block of whole pages that has a mapping of its own has room for most of a page more; one in a heap for a
// few bytes. A mapping that is freed at its full size would raise the threshold that is looked for, so it
// shrinks first.
bool gets_a_mapping(size_t bytes) {
  void* block = std::malloc(bytes);
  if (block == nullptr) return true;
  const bool mapped = malloc_usable_size(block) - bytes > 1000;
  if (mapped) {
    if (void* small = std::realloc(block, 1)) block = small;
  }
  std::free(block);
  return mapped;
}

size_t learned_mmap_threshold() {
  size_t below = 0, reached = kLargestLearnedMmapThreshold / kUnit;
  while (reached - below > 1) {
    const size_t middle = (below + reached) / 2;
    (gets_a_mapping(middle * kUnit) ? reached : below) = middle;
  }
  return reached * kUnit;
}

// The function in the first library that has one, the program's own left out.
void* first_in_libraries(const char* name) {
  void* first = nullptr;
  visit_loaded_objects([&](const char* path) {
    if (*path == '\0') return false;
    void* const handle = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) return false;
    link_map* library = nullptr;
    void* const found = dlsym(handle, name);  // searches what the library needs, too
    Dl_info where{};
    if (found != nullptr && dlinfo(handle, RTLD_DI_LINKMAP, &library) == 0 && dladdr(found, &where) != 0 &&
        where.dli_fbase == reinterpret_cast<void*>(library->l_addr))
      first = found;
    dlclose(handle);
    return first != nullptr;
  });
  return first;
}

// What a call of the function reaches. A program at a fixed address, as Debian's Python is one, has an entry of
// its own for each function of a library whose address it takes. dlsym() gives this entry, whose symbol has no
// section.
void* in_use(const char* name) {
  void* const found = dlsym(RTLD_DEFAULT, name);
  Dl_info where{};
  void* entry = nullptr;
  if (found == nullptr || dladdr1(found, &where, &entry, RTLD_DL_SYMENT) == 0 || entry == nullptr) return found;
  return static_cast<const ElfW(Sym)*>(entry)->st_shndx == SHN_UNDEF ? first_in_libraries(name) : found;
}

bool is_libcs(void* libc, const char* name) {
  void* const function = in_use(name);
  return function != nullptr && function == dlsym(libc, name);
}

}  // namespace

bool malloc_is_glibcs() {
  void* const libc = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
  if (libc == nullptr) return false;
  const bool all = is_libcs(libc, "malloc") && is_libcs(libc, "free") && is_libcs(libc, "posix_memalign");
  dlclose(libc);
  return all;
}

bool environment_tunes_malloc() {
  for (const char* name :
       {"MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  const char* tunables = std::getenv("GLIBC_TUNABLES");
  return tunables != nullptr && std::string_view(tunables).find("glibc.malloc.") != std::string_view::npos;
}

HeapThresholds learned_heap_thresholds() {
  // The heap of this thread may have free places, which are used whatever the threshold is.
  HeapThresholds found;
  std::thread([&found] { found.mmap = learned_mmap_threshold(); }).join();
  found.trim = found.mmap > kInitialThreshold ? 2 * found.mmap : kInitialThreshold;
  found.top_pad = kInitialThreshold;
  return found;
}

bool set_heap_thresholds(const HeapThresholds& thresholds) {
  const auto set = [](int parameter, size_t bytes) {
    return mallopt(parameter, static_cast<int>(std::min<size_t>(bytes, INT32_MAX))) == 1;
  };
  const bool mmap = set(M_MMAP_THRESHOLD, thresholds.mmap) ||
                    set(M_MMAP_THRESHOLD, std::min(thresholds.mmap, kLargestLearnedMmapThreshold));
  const bool trim = set(M_TRIM_THRESHOLD, thresholds.trim);
  return set(M_TOP_PAD, thresholds.top_pad) && mmap && trim;
}

void release_free_memory() { malloc_trim(0); }

#else

bool malloc_is_glibcs() { return false; }
bool environment_tunes_malloc() { return false; }
HeapThresholds learned_heap_thresholds() { return {}; }
bool set_heap_thresholds(const HeapThresholds&) { return false; }
void release_free_memory() {}

#endif

}  // namespace overdrive::base
