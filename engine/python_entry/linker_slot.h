// The slots that the dynamic linker filled for one imported function of a loaded object: each call of that
// function from the object reads the address in one of them. Uses the tables of the loader, no LibTorch.
// Any thread may call these. The caller makes sure that no two threads replace a slot at the same moment.
#pragma once

#include <link.h>

#include <vector>

namespace overdrive::engine {

struct LinkerSlot {
  void** place = nullptr;
  bool called_through = false;  // the kind that holds an address for calls (JUMP_SLOT, GLOB_DAT)
};

// The loaded object whose file name begins with `name` ("libtorch_python.so"), or null. Objects are never
// loaded by this call. The object that it returns is not unloaded any more.
link_map* find_loaded_object(const char* name);

// All relocations of the object that name this symbol.
std::vector<LinkerSlot> find_linker_slots(const link_map& object, const char* symbol);

// Puts `replacement` into the slot if `expected` is in there, at once for all threads. Also where the loader
// has made the slot read-only (RELRO). False, and errno says why, when the system refuses to make it writable
// or the slot holds something else (errno 0).
bool replace_linker_slot(const link_map& object, void** place, void* expected, void* replacement);

}  // namespace overdrive::engine
