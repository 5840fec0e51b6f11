# The library alone, unless a preset says otherwise: whoever types `cmake -B build` may have no GoogleTest, and another compiler's
# warnings shall not stop the build.
option(OVERDRIVE_BUILD_TESTS "Build the test suite" OFF)
option(OVERDRIVE_BUILD_BENCHMARKS "Build the benchmarks" OFF)
option(OVERDRIVE_BUILD_EXAMPLES "Build the examples and the command-line program" OFF)
option(OVERDRIVE_BUILD_STEP_LIBRARY "Build liboverdrive_step.so, which loads step files alone; tests and examples need it" ${PROJECT_IS_TOP_LEVEL})
option(OVERDRIVE_WERROR "Treat warnings in our own code as errors" OFF)
option(OVERDRIVE_UNITY "Compile several sources of a target at once: half the time for a clean build" OFF)
set(OVERDRIVE_CUDA auto CACHE STRING "The CUDA toolkit: auto (used where there is one), on (an error without one) or off")
set_property(CACHE OVERDRIVE_CUDA PROPERTY STRINGS auto on off)
if(NOT OVERDRIVE_CUDA MATCHES "^(auto|on|off)$")
  message(FATAL_ERROR "OVERDRIVE_CUDA is \"${OVERDRIVE_CUDA}\", but must be auto, on or off.")
endif()
set(OVERDRIVE_SANITIZE "" CACHE STRING "Sanitizers to build with: '', 'address,undefined' or 'thread'")
option(OVERDRIVE_COVERAGE "Count which lines the tests run" OFF)

set(OVERDRIVE_OPTIMISATION "" CACHE STRING "The library's own optimisation: -O0 while one works on it, '' for the build type's")

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# overdrive_in_pieces(TARGET [SOURCES]): with OVERDRIVE_UNITY, eight sources of the target, or as many as named, are
# compiled at once. LibTorch's headers leave about 5 s of instantiations to every translation unit, precompiled or not.
function(overdrive_in_pieces target)
  set(sources 8)
  if(ARGC GREATER 1)
    set(sources ${ARGV1})
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${OVERDRIVE_UNITY} UNITY_BUILD_BATCH_SIZE ${sources})
endfunction()

# overdrive_in_components(TARGET FOLDERS...): the same with a piece for each FOLDERS, a regular expression over paths
# from the root, so that a new source has its own component compiled again and no other. What fits none is compiled
# alone.
function(overdrive_in_components target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${OVERDRIVE_UNITY} UNITY_BUILD_MODE GROUP)
  get_target_property(folder ${target} SOURCE_DIR)
  get_target_property(sources ${target} SOURCES)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${folder}" NORMALIZE)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE path)
    foreach(component ${ARGN})
      if(path MATCHES "^${component}")
        string(MAKE_C_IDENTIFIER "${component}" group)
        set_property(SOURCE "${source}" TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP ${group})
        break()
      endif()
    endforeach()
  endforeach()
endfunction()

# Tests spend a fifth of their build time in the optimiser and gain nothing from it; under the thread sanitizer they do.
set(OVERDRIVE_TEST_OPTIMISATION -O0)
if(OVERDRIVE_SANITIZE MATCHES "thread")
  set(OVERDRIVE_TEST_OPTIMISATION -O1)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# Messages name files as the checkout does, wherever it lies.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)

if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  # A build elsewhere gives the same program: its path to the libraries beside it is relative.
  set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
  find_program(OVERDRIVE_CCACHE ccache)
  if(OVERDRIVE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # A precompiled header is cacheable only when these checks are relaxed. Paths are cached relative to the
    # checkout, so that a second clone of it finds what the first one compiled.
    set(CMAKE_CXX_COMPILER_LAUNCHER
        "${CMAKE_COMMAND}" -E env
        "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime"
        "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}"
        CCACHE_NOHASHDIR=1
        "${OVERDRIVE_CCACHE}")
  endif()
endif()
