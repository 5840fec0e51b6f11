# Interface target of what a whole build is instrumented with: sanitizers or coverage.
add_library(overdrive_sanitizers INTERFACE)
if(OVERDRIVE_SANITIZE)
  target_compile_options(overdrive_sanitizers INTERFACE
    -fsanitize=${OVERDRIVE_SANITIZE} -fno-omit-frame-pointer -g1)
  target_link_options(overdrive_sanitizers INTERFACE -fsanitize=${OVERDRIVE_SANITIZE})
  if(OVERDRIVE_SANITIZE MATCHES "undefined")
    target_compile_options(overdrive_sanitizers INTERFACE -fno-sanitize-recover=undefined -fno-sanitize=vptr)
  endif()
  # GCC warns that the sanitizer does not follow a fence; LibTorch's headers have one.
  if(OVERDRIVE_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(overdrive_sanitizers INTERFACE -Wno-tsan)
  endif()
endif()
if(OVERDRIVE_COVERAGE)
  target_compile_options(overdrive_sanitizers INTERFACE --coverage -fprofile-update=atomic)
  target_link_options(overdrive_sanitizers INTERFACE --coverage)
endif()
