#include "engine/run/fresh_stack.h"

#include "engine/base/no_destructor.h"

#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define OVERDRIVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OVERDRIVE_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define OVERDRIVE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define OVERDRIVE_TSAN 1
#endif
#endif
#if defined(OVERDRIVE_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(OVERDRIVE_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

namespace overdrive::engine {
namespace {

struct StackBounds {
  uintptr_t bottom = 0;  // the lowest address
  size_t size = 0;
};

// Of the stack that this thread runs on now; found when first asked for.
thread_local StackBounds current_stack;

StackBounds thread_stack() {
  pthread_attr_t attributes;
  if (pthread_getattr_np(pthread_self(), &attributes) != 0) return {};
  void* bottom = nullptr;
  size_t size = 0;
  pthread_attr_getstack(&attributes, &bottom, &size);
  pthread_attr_destroy(&attributes);
  return {reinterpret_cast<uintptr_t>(bottom), size};
}

// Memory for a stack, with a page below it that faults when it overflows.
class StackMemory {
 public:
  StackMemory() : guard_(static_cast<size_t>(sysconf(_SC_PAGESIZE))) {
    void* memory = mmap(nullptr, guard_ + kSize, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<char*>(memory);
    mprotect(base_, guard_, PROT_NONE);
  }
  ~StackMemory() { munmap(base_, guard_ + kSize); }
  StackMemory(const StackMemory&) = delete;
  StackMemory& operator=(const StackMemory&) = delete;

  char* bottom() const { return base_ + guard_; }
  static constexpr size_t kSize = size_t{2} << 20;

 private:
  const size_t guard_;
  char* base_ = nullptr;
};

struct Call {
  const std::function<void()>* body = nullptr;
  std::exception_ptr error;
  bool over = false;  // the body has returned, or thrown `error`
  ucontext_t here{};
  ucontext_t there{};
  const void* old_bottom = nullptr;  // what the address sanitizer knows of the old stack
  size_t old_size = 0;
  void* old_fiber = nullptr;  // the thread sanitizer's
  void* new_fiber = nullptr;
};

void leave(Call& call) {
#if defined(OVERDRIVE_ASAN)
  __sanitizer_start_switch_fiber(nullptr, call.old_bottom, call.old_size);
#endif
#if defined(OVERDRIVE_TSAN)
  __tsan_switch_to_fiber(call.old_fiber, 0);
#endif
  swapcontext(&call.there, &call.here);
}

void run_body(Call& call) {
  try {
    (*call.body)();
  } catch (...) {
    if (base::thread_is_ending()) throw;
    call.error = std::current_exception();
  }
  call.over = true;
}

// The end of a thread unwinds its stack, which no catch may hold up and which cannot go on from this stack
// to the one before: it is left here, in the middle, and begun again there. What the thread would have
// returned is lost.
struct LeaveWhenThreadEnds {
  Call& call;
  ~LeaveWhenThreadEnds() {
    if (!call.over) leave(call);
  }
};

void enter(unsigned low, unsigned high) {
  auto* call = reinterpret_cast<Call*>(static_cast<uintptr_t>(low) | static_cast<uintptr_t>(high) << 32);
#if defined(OVERDRIVE_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, &call->old_bottom, &call->old_size);
#endif
  {
    const LeaveWhenThreadEnds guard{*call};
    run_body(*call);
  }
  leave(*call);
}

void switch_to(Call& call, const StackMemory& stack) {
  (void)stack;
#if defined(OVERDRIVE_TSAN)
  call.old_fiber = __tsan_get_current_fiber();
  call.new_fiber = __tsan_create_fiber(0);
  __tsan_switch_to_fiber(call.new_fiber, 0);
#endif
#if defined(OVERDRIVE_ASAN)
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, stack.bottom(), StackMemory::kSize);
#endif
  swapcontext(&call.here, &call.there);
#if defined(OVERDRIVE_ASAN)
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
#if defined(OVERDRIVE_TSAN)
  __tsan_destroy_fiber(call.new_fiber);
#endif
}

}  // namespace

bool stack_is_low() {
  if (current_stack.size == 0) current_stack = thread_stack();
  const auto here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  // On another stack than we know (a coroutine of the program's): its depth is not ours to judge.
  if (here - current_stack.bottom >= current_stack.size) return false;
  return here - current_stack.bottom < current_stack.size / 8;
}

void call_on_fresh_stack(const std::function<void()>& body) {
  const StackMemory stack;
  Call call;
  call.body = &body;
  getcontext(&call.there);
  call.there.uc_stack.ss_sp = stack.bottom();
  call.there.uc_stack.ss_size = StackMemory::kSize;
  call.there.uc_link = nullptr;  // enter() switches back itself
  const auto address = reinterpret_cast<uintptr_t>(&call);
  makecontext(&call.there, reinterpret_cast<void (*)()>(enter), 2, static_cast<unsigned>(address),
              static_cast<unsigned>(address >> 32));

  const StackBounds outer = current_stack;
  current_stack = {reinterpret_cast<uintptr_t>(stack.bottom()), StackMemory::kSize};
  switch_to(call, stack);
  current_stack = outer;
  if (!call.over) pthread_exit(PTHREAD_CANCELED);
  if (call.error) std::rethrow_exception(std::move(call.error));
}

}  // namespace overdrive::engine
