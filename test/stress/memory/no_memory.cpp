#include "test/stress/memory/no_memory.h"

#include "engine/engine.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <link.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <string_view>
#include <utility>

namespace overdrive::test {
namespace {

constinit std::atomic<int64_t> blocks{0};
// Allocations until the one that fails; 0 and less: none fails.
constinit std::atomic<int64_t> objects_left{0};
constinit std::atomic<int64_t> tensors_left{0};
constinit std::atomic<bool> failed{false};

// True once, for the allocation that is to fail.
bool fails(std::atomic<int64_t>& left) {
  if (left.load(std::memory_order_relaxed) <= 0 || left.fetch_sub(1) != 1) return false;
  failed = true;
  return true;
}

struct Code {
  uintptr_t begin = 0, end = 0;
  bool has(const void* address) const {
    const auto at = reinterpret_cast<uintptr_t>(address);
    return begin <= at && at < end;
  }
};

// The code of this program and of Overdrive.
const std::array<Code, 2>& watched_code() {
  static const std::array<Code, 2> code = [] {
    std::array<Code, 2> found;
    const std::array<uintptr_t, 2> inside{
        reinterpret_cast<uintptr_t>(&live_blocks),
        reinterpret_cast<uintptr_t>(dlsym(RTLD_DEFAULT, "overdrive_install"))};
    for (size_t i = 0; i < inside.size(); ++i) {
      std::pair<uintptr_t, Code*> search{inside[i], &found[i]};
      dl_iterate_phdr(
          [](dl_phdr_info* object, size_t, void* out) {
            auto& [address, place] = *static_cast<std::pair<uintptr_t, Code*>*>(out);
            for (int k = 0; k < object->dlpi_phnum; ++k) {
              const auto& part = object->dlpi_phdr[k];
              const uintptr_t begin = object->dlpi_addr + part.p_vaddr;
              if (part.p_type == PT_LOAD && begin <= address && address < begin + part.p_memsz)
                *place = {begin, begin + part.p_memsz};
            }
            return 0;
          },
          &search);
    }
    return found;
  }();
  return code;
}

bool is_watched(const void* caller) { return watched_code()[0].has(caller) || watched_code()[1].has(caller); }

// Whether LibTorch called the code around `caller`: its templates of the standard library may be those that
// this program or Overdrive exports. Then all frames of ours belong to such a template, and the outermost one
// has its name.
bool is_a_template_of_the_host() {
  std::array<void*, 48> frames{};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  int outermost = 0;
  while (outermost < count && !is_watched(frames[outermost])) ++outermost;
  while (outermost + 1 < count && is_watched(frames[outermost + 1])) ++outermost;
  Dl_info about{};
  if (outermost == count || dladdr(frames[outermost], &about) == 0 || about.dli_sname == nullptr) return false;
  const std::string_view name = about.dli_sname;
  return name.starts_with("_ZNSt") || name.starts_with("_ZNKSt") || name.starts_with("_ZSt");
}

bool fails_for(const void* caller) {
  return objects_left.load(std::memory_order_relaxed) > 0 && is_watched(caller) &&
         !is_a_template_of_the_host() && fails(objects_left);
}

void* allocate(size_t bytes, size_t alignment, const void* caller) {
  void* memory = nullptr;
  if (!fails_for(caller)) {
    memory = alignment == 0 ? std::malloc(bytes == 0 ? 1 : bytes)
                            : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  if (memory != nullptr) blocks.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void* allocate_or_throw(size_t bytes, size_t alignment, const void* caller) {
  void* const memory = allocate(bytes, alignment, caller);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory) {
  if (memory != nullptr) blocks.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

NoMemory::NoMemory(Memory which, int64_t nth) {
  watched_code();
  is_a_template_of_the_host();  // the first backtrace() allocates
  failed = false;
  (which == Memory::kOfObjects ? objects_left : tensors_left) = nth;
}
NoMemory::~NoMemory() { objects_left = tensors_left = 0; }
bool NoMemory::happened() { return failed.load(); }

int64_t live_blocks() { return blocks.load(); }

}  // namespace overdrive::test

#define CALLER __builtin_return_address(0)
using overdrive::test::allocate;
using overdrive::test::allocate_or_throw;
using overdrive::test::release;

void* operator new(size_t bytes) { return allocate_or_throw(bytes, 0, CALLER); }
void* operator new[](size_t bytes) { return allocate_or_throw(bytes, 0, CALLER); }
void* operator new(size_t bytes, std::align_val_t at) {
  return allocate_or_throw(bytes, static_cast<size_t>(at), CALLER);
}
void* operator new[](size_t bytes, std::align_val_t at) {
  return allocate_or_throw(bytes, static_cast<size_t>(at), CALLER);
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 0, CALLER); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes, 0, CALLER); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, size_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { release(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { release(memory); }

// The tables of a plan grow by realloc(), LibTorch's tensors lie in posix_memalign().
extern "C" void* realloc(void* memory, size_t bytes) noexcept {
  static auto* const real = reinterpret_cast<decltype(&realloc)>(dlsym(RTLD_NEXT, "realloc"));
  return overdrive::test::fails_for(CALLER) ? nullptr : real(memory, bytes);
}
extern "C" int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  static auto* const real = reinterpret_cast<decltype(&posix_memalign)>(dlsym(RTLD_NEXT, "posix_memalign"));
  return overdrive::test::fails(overdrive::test::tensors_left) ? ENOMEM : real(memory, alignment, bytes);
}
