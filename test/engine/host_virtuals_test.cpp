// The virtual functions of LibTorch's Engine, each with who answers it in ours: a new one that we neither
// answer nor leave to the base class on purpose would silently skip the previous engine.
#include "engine/engine.h"

#include "test/support/pch.h"

#include <dlfcn.h>
#include <link.h>
#include <torch/version.h>

#include <cstring>
#include <set>

namespace {

using namespace torch::autograd;
using NodePtr = decltype(Edge::function);

// The signatures that ours overrides; thread_main() is protected and has none here.
static_assert(
    std::is_same_v<decltype(&Engine::execute), variable_list (Engine::*)(const edge_list&, const variable_list&,
                                                                         bool, bool, bool, const edge_list&)>);
static_assert(std::is_same_v<decltype(&Engine::execute_with_graph_task),
                             c10::intrusive_ptr<at::ivalue::Future> (Engine::*)(
                                 const std::shared_ptr<GraphTask>&, NodePtr, InputBuffer&&)>);
static_assert(
    std::is_same_v<decltype(&Engine::make_anomaly_metadata), std::unique_ptr<AnomalyMetadata> (Engine::*)()>);
static_assert(std::is_same_v<decltype(&Engine::get_default_saved_variable_hooks),
                             std::unique_ptr<SavedVariableHooks> (Engine::*)()>);
static_assert(
    std::is_same_v<decltype(&Engine::thread_on_exception),
                   void (Engine::*)(const std::shared_ptr<GraphTask>&, const NodePtr&, std::exception&)>);
static_assert(std::is_same_v<decltype(&Engine::thread_init),
                             void (Engine::*)(int, const std::shared_ptr<ReadyQueue>&, bool)>);

enum class Answer {
  kOurs,  // overridden: implemented, or given to the previous engine
  kBase,  // the base class's, on our object
};

struct Virtual {
  const char* name;
  size_t slot;  // its place in the table
  Answer answer;
};

// A pointer to a virtual function holds the function's offset in the table, on x86-64 plus one.
template <typename Member>
size_t slot_of(Member member) {
  static_assert(std::is_member_function_pointer_v<Member>);
  uintptr_t offset;
  std::memcpy(&offset, &member, sizeof offset);
  return (offset & ~uintptr_t{1}) / sizeof(void*);
}

struct ProtectedOnes : Engine {
  static size_t thread_main_slot() { return slot_of(&ProtectedOnes::thread_main); }
};

std::vector<Virtual> virtuals() {
  return {
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 14
    {"get_node_creation_hooks", slot_of(&Engine::get_node_creation_hooks), Answer::kOurs},
#endif
        {"~Engine", 0, Answer::kOurs}, {"~Engine with delete", 1, Answer::kOurs},
        {"execute", slot_of(&Engine::execute), Answer::kOurs},
        {"execute_with_graph_task", slot_of(&Engine::execute_with_graph_task), Answer::kOurs},
        {"make_anomaly_metadata", slot_of(&Engine::make_anomaly_metadata), Answer::kOurs},
        {"get_default_saved_variable_hooks", slot_of(&Engine::get_default_saved_variable_hooks), Answer::kOurs},
        {"thread_on_exception", slot_of(&Engine::thread_on_exception), Answer::kOurs},
        // What a thread of the base class's own, or of ours, has to set up.
        {"thread_init", slot_of(&Engine::thread_init), Answer::kBase},
        // The base class's loop, but for a worker of ours that is new.
        {"thread_main", ProtectedOnes::thread_main_slot(), Answer::kOurs},
  };
}

using Slot = const void*;

// How many functions LibTorch's own table has room for: its size less the two words before them.
size_t size_of_base_table() {
  void* table = dlsym(RTLD_DEFAULT, "_ZTVN5torch8autograd6EngineE");
  Dl_info info;
  const ElfW(Sym)* symbol = nullptr;
  if (!table ||
      !dladdr1(table, &info, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)), RTLD_DL_SYMENT)) {
    return 0;
  }
  return symbol ? symbol->st_size / sizeof(Slot) - 2 : 0;
}

const Slot* table_of(const Engine& engine) { return *reinterpret_cast<const Slot* const*>(&engine); }

TEST(HostVirtuals, AreThoseOfTheListAndNoOther) {
  std::set<size_t> slots;
  for (const Virtual& row : virtuals()) EXPECT_TRUE(slots.insert(row.slot).second) << row.name;
  ASSERT_EQ(size_of_base_table(), slots.size());
  EXPECT_EQ(*slots.rbegin(), slots.size() - 1);
}

TEST(HostVirtuals, AreAnsweredByUsOrLeftToTheBaseClassAsTheListSays) {
  overdrive::ScopedInstall scope;
  const Slot* base = table_of(Engine::get_base_engine());
  const Slot* ours = table_of(Engine::get_default_engine());
  for (const Virtual& row : virtuals()) {
    const Answer answer = ours[row.slot] == base[row.slot] ? Answer::kBase : Answer::kOurs;
    EXPECT_EQ(answer, row.answer) << row.name;
  }
}

}  // namespace
