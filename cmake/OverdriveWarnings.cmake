# Private to our own build: never exported, never imposed on a consumer.
add_library(overdrive_warnings INTERFACE)
target_compile_options(overdrive_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
  -Wno-unused-parameter
  $<$<BOOL:${OVERDRIVE_WERROR}>:-Werror>
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-stringop-overflow -Wno-array-bounds>
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety -Wthread-safety-beta>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A header compiled with other flags must be noticed, not silently parsed again.
  target_compile_options(overdrive_warnings INTERFACE -Winvalid-pch)
  # 64-bit ARM: GCC notes at every use of some of LibTorch's types that GCC 10 changed how they are passed.
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
    target_compile_options(overdrive_warnings INTERFACE -Wno-psabi)
  endif()
endif()
