// Redirecting the calls that one loaded object makes of a function of another. No LibTorch.
#include "engine/python_entry/linker_slot.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

namespace {

using namespace overdrive::engine;

constexpr const char* kSymbol = "overdrive_slot_function";
int ours() { return 2; }

struct Library {
  explicit Library(const char* path) : handle(dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(handle, nullptr) << dlerror();
    dlinfo(handle, RTLD_DI_LINKMAP, &object);
  }
  int call() const { return reinterpret_cast<int (*)()>(dlsym(handle, "overdrive_call_slot_function"))(); }
  void* function() const { return dlsym(handle, kSymbol); }

  void* handle;
  link_map* object = nullptr;
};

class LinkerSlotOfALibrary : public testing::TestWithParam<const char*> {};

TEST_P(LinkerSlotOfALibrary, IsRedirectedAndPutBack) {
  const Library library(GetParam());
  const auto slots = find_linker_slots(*library.object, kSymbol);
  ASSERT_EQ(slots.size(), 1);
  EXPECT_TRUE(slots[0].called_through);
  void* const theirs = library.function();
  EXPECT_EQ(library.call(), 1);
  ASSERT_TRUE(replace_linker_slot(*library.object, slots[0].place, theirs, reinterpret_cast<void*>(&ours)));
  EXPECT_EQ(library.call(), 2);
  errno = EINVAL;
  EXPECT_FALSE(replace_linker_slot(*library.object, slots[0].place, theirs, reinterpret_cast<void*>(&ours)));
  EXPECT_EQ(errno, 0);
  EXPECT_EQ(library.call(), 2);
  ASSERT_TRUE(replace_linker_slot(*library.object, slots[0].place, reinterpret_cast<void*>(&ours), theirs));
  EXPECT_EQ(library.call(), 1);
}

// As libtorch_python.so is linked on x86-64, on aarch64, and with calls that read the address themselves.
INSTANTIATE_TEST_SUITE_P(Ways, LinkerSlotOfALibrary,
                         testing::Values(OVERDRIVE_SLOT_FOLDER "/libslot_caller_lazy.so",
                                         OVERDRIVE_SLOT_FOLDER "/libslot_caller_read_only.so",
                                         OVERDRIVE_SLOT_FOLDER "/libslot_caller_direct.so"));

TEST(LinkerSlots, AreAllFound) {
  const Library library(OVERDRIVE_SLOT_FOLDER "/libslot_caller_two.so");
  EXPECT_EQ(find_linker_slots(*library.object, kSymbol).size(), 2);
  EXPECT_TRUE(find_linker_slots(*library.object, "overdrive_no_such_function").empty());
}

TEST(LoadedObjects, AreFoundByNameAndNeverLoaded) {
  EXPECT_EQ(find_loaded_object("libslot_caller_none.so"), nullptr);
  const Library library(OVERDRIVE_SLOT_FOLDER "/libslot_caller_lazy.so");
  EXPECT_EQ(find_loaded_object("libslot_caller_lazy.so"), library.object);
}

// The loader frees what it knows of an object as soon as it is unloaded.
TEST(LoadedObjects, AreLookedForWhileOthersGo) {
  std::atomic<bool> stop{false};
  std::thread other([&stop] {
    while (!stop) {
      for (const char* name : {"lazy", "read_only", "direct", "two"}) {
        const std::string path = std::string(OVERDRIVE_SLOT_FOLDER "/libslot_caller_") + name + ".so";
        dlclose(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
      }
    }
  });
  for (int i = 0; i < 5000; ++i) EXPECT_EQ(find_loaded_object("libslot_caller_none.so"), nullptr);
  stop = true;
  other.join();
}

}  // namespace
