#include "engine/base/loaded_objects.h"

#include "engine/base/no_destructor.h"
#include "engine/base/process_mutex.h"

namespace overdrive::base {

int look_at_loaded_objects(int (*look)(dl_phdr_info*, size_t, void*), void* data) {
  static NoDestructor<ProcessMutex> mutex("loaded objects");
  const MutexLock lock(*mutex);
  return dl_iterate_phdr(look, data);
}

}  // namespace overdrive::base
