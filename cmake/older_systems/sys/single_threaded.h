// Stands before glibc's <sys/single_threaded.h> while the library is compiled. The reference counts of
// std::shared_ptr read glibc's flag __libc_single_threaded, which systems before glibc 2.32 lack, so a library
// that names the flag does not load there. Here the name means a read through a pointer
// (engine/base/older_systems.cpp), as a linker makes it of the flag itself.
#pragma once

namespace overdrive_older_systems {

__attribute__((visibility("hidden"))) extern const char* single_threaded;
inline bool is_single_threaded() noexcept { return *single_threaded != 0; }

}  // namespace overdrive_older_systems

#define __libc_single_threaded overdrive_older_systems::is_single_threaded()
