# Interface targets. overdrive_instrumented is for the library and for its sources that a test compiles by itself: the
# sanitizers of a whole build, or the counting of lines. overdrive_sanitizers is for everything else. The address
# sanitizer and the counting leave the rest as it always is, so that tests come from the compiler cache; the thread
# sanitizer must see the rest, too, or it takes what a test's own atomics put in order for a race.
add_library(overdrive_instrumented INTERFACE)
add_library(overdrive_sanitizers INTERFACE)
if(OVERDRIVE_SANITIZE)
  set(flags -fsanitize=${OVERDRIVE_SANITIZE} -fno-omit-frame-pointer -g1)
  if(OVERDRIVE_SANITIZE MATCHES "undefined")
    list(APPEND flags -fno-sanitize-recover=undefined -fno-sanitize=vptr)
  endif()
  # GCC warns that the sanitizer does not follow a fence; LibTorch's headers have one.
  if(OVERDRIVE_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND flags -Wno-tsan)
  endif()
  target_compile_options(overdrive_instrumented INTERFACE ${flags})
  if(OVERDRIVE_SANITIZE MATCHES "thread")
    target_compile_options(overdrive_sanitizers INTERFACE ${flags})
  endif()
  target_link_options(overdrive_sanitizers INTERFACE -fsanitize=${OVERDRIVE_SANITIZE})
endif()
if(OVERDRIVE_COVERAGE)
  target_compile_options(overdrive_instrumented INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(overdrive_instrumented INTERFACE --coverage)
endif()
