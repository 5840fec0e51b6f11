#include "engine/python_entry/python_entry.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"
#include "engine/python_entry/linker_slot.h"

#include <dlfcn.h>

#include <atomic>
#include <cerrno>
#include <cstring>

namespace overdrive::engine::python_entry {
namespace {

constexpr const char* kObject = "libtorch_python.so";
// Engine::execute(edge_list const&, variable_list const&, bool, bool, bool, edge_list const&)
constexpr const char* kExecute =
    "_ZN5torch8autograd6Engine7executeERKSt6vectorINS0_4EdgeESaIS3_EERKS2_IN2at6TensorESaIS9_EEbbbS7_";
constexpr const char* kConsequence = " Backwards that Python starts cannot be served.";

std::atomic<Execute> original{nullptr};
std::atomic<bool> opened{false};

// One thread at a time makes the slot's page writable and read-only again. See Note [Loader's lock] in
// install.cpp: no look-up of a name happens under this lock.
base::ProcessMutex& writing() {
  static base::NoDestructor<base::ProcessMutex> mutex("Python's entry");
  return *mutex;
}

// LibTorch's function, as the object itself would find it.
void* find_execute(const link_map& object) {
  void* handle = dlopen(object.l_name, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return nullptr;
  void* found = dlsym(handle, kExecute);
  dlclose(handle);  // the object stays: whoever loaded it holds it
  return found;
}

// A slot that no call has gone through yet may still lead to the object's own code, which asks the loader.
bool is_unresolved(const link_map& object, const void* value) {
  Dl_info info;
  return dladdr(value, &info) != 0 && info.dli_fname != nullptr &&
         std::strcmp(info.dli_fname, object.l_name) == 0;
}

std::string redirect(const link_map& object, Execute ours) {
  const std::string path = object.l_name;
  const std::vector<LinkerSlot> slots = find_linker_slots(object, kExecute);
  if (slots.size() != 1 || !slots[0].called_through) {
    return path + " has " + std::to_string(slots.size()) +
           " linker slots for Engine::execute() where one for calls is needed; it may be linked with "
           "-Bsymbolic or "
           "be another build than PyTorch's own." +
           kConsequence;
  }
  void* const execute = find_execute(object);
  void* const before = __atomic_load_n(slots[0].place, __ATOMIC_ACQUIRE);
  if (execute != nullptr && before == reinterpret_cast<void*>(ours))
    return "";  // another thread was here first
  if (execute == nullptr || (before != execute && !is_unresolved(object, before))) {
    return "The linker slot for Engine::execute() in " + path +
           " does not lead to LibTorch's function: something else in this process has redirected it." +
           kConsequence;
  }
  original.store(reinterpret_cast<Execute>(execute), std::memory_order_release);
  const base::MutexLock lock(writing());
  if (__atomic_load_n(slots[0].place, __ATOMIC_ACQUIRE) == reinterpret_cast<void*>(ours)) return "";
  if (!replace_linker_slot(object, slots[0].place, before, reinterpret_cast<void*>(ours))) {
    const int error = errno;
    return "The linker slot for Engine::execute() in " + path + " cannot be written: " +
           (error == 0 ? "it changed meanwhile." : std::string(std::strerror(error)) + ".") + kConsequence;
  }
  return "";
}

}  // namespace

std::string open(Execute ours) {
  if (is_open()) return "";
  const link_map* object = find_loaded_object(kObject);
  if (object == nullptr) return "";
  std::string problem = redirect(*object, ours);
  opened.store(problem.empty(), std::memory_order_release);
  return problem;
}

bool is_open() { return opened.load(std::memory_order_acquire); }
Execute stock() { return original.load(std::memory_order_acquire); }

}  // namespace overdrive::engine::python_entry
