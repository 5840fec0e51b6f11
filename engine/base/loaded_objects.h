// The objects that the loader has loaded, while other threads load and unload. Plain C inside, because the
// preload library reads it too and has no C++ library. No state; any thread.
#pragma once

#include <limits.h>
#include <link.h>
#include <stddef.h>
#include <stdio.h>

namespace overdrive::base {

// The loader's own list of link_maps may be read under the loader's lock alone, which nobody else can take. In
// dl_iterate_phdr() the loader holds it, and must not be called. So each call of that copies one name.
struct LoadedObject {
  size_t wanted = 0;  // its place in the list
  size_t at = 0;
  unsigned long long unloaded = 0;  // objects of the process so far
  bool found = false;
  char path[PATH_MAX];  // of an object that was found

  static int copy(dl_phdr_info* info, size_t, void* of) {
    auto& object = *static_cast<LoadedObject*>(of);
    object.unloaded = info->dlpi_subs;
    if (object.at++ != object.wanted) return 0;
    snprintf(object.path, sizeof object.path, "%s", info->dlpi_name);
    object.found = true;
    return 1;
  }
};

// Calls dl_iterate_phdr() so that no fork happens meanwhile: a child of glibc's fork would wait for the lock of
// the loader's list for ever. The library asks by this alone; the preload library, which has none of the
// library's locks, asks once. `look` must not call the loader.
int look_at_loaded_objects(int (*look)(dl_phdr_info*, size_t, void*), void* data);

// Calls `visit` with the path of each loaded object (the program's is empty) until it returns true. Returns
// whether it did. `visit` may call the loader; dlopen() with RTLD_NOLOAD gives an object that stays, or null
// when it has been unloaded meanwhile. An object is visited twice when others are unloaded.
template <auto look_at_objects = &look_at_loaded_objects, typename Visit>
bool visit_loaded_objects(const Visit& visit) {
  unsigned long long unloaded = 0;
  for (size_t place = 0;; ++place) {
    LoadedObject object;
    object.wanted = place;
    look_at_objects(&LoadedObject::copy, &object);
    if (!object.found) return false;
    if (place != 0 && object.unloaded != unloaded) {  // the places have moved
      place = static_cast<size_t>(-1);
      continue;
    }
    unloaded = object.unloaded;
    if (visit(static_cast<const char*>(object.path))) return true;
  }
}

}  // namespace overdrive::base
