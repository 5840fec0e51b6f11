# Finds LibTorch and its version. tools/setup.sh wrote down where it is, for a configure that is not told.
if(NOT Torch_DIR AND NOT CMAKE_PREFIX_PATH AND NOT DEFINED ENV{CMAKE_PREFIX_PATH} AND NOT DEFINED ENV{Torch_DIR}
   AND EXISTS "${PROJECT_SOURCE_DIR}/.deps/torch_dir")
  file(STRINGS "${PROJECT_SOURCE_DIR}/.deps/torch_dir" Torch_DIR LIMIT_COUNT 1)
endif()
# For a CUDA LibTorch. Its config looks for the toolkit beside the first nvcc of PATH, which may be a script that
# stands for one elsewhere; and compiles a program with CUDA to ask which processors are here, in a dialect that
# CMake may not know. Nothing of ours is compiled by its flags (hooks/CMakeLists.txt calls nvcc itself).
find_package(CUDAToolkit QUIET)
if(CUDAToolkit_FOUND)
  if(NOT CUDA_TOOLKIT_ROOT_DIR)
    get_filename_component(CUDA_TOOLKIT_ROOT_DIR "${CUDAToolkit_BIN_DIR}" DIRECTORY)
  endif()
  if(NOT CMAKE_CUDA_STANDARD)
    set(CMAKE_CUDA_STANDARD 17)
  endif()
  if(NOT TORCH_CUDA_ARCH_LIST AND NOT DEFINED ENV{TORCH_CUDA_ARCH_LIST})
    set(TORCH_CUDA_ARCH_LIST 8.0)
  endif()
endif()
find_package(Torch REQUIRED)
if(NOT Torch_VERSION)
  file(STRINGS "${TORCH_INSTALL_PREFIX}/include/torch/csrc/api/include/torch/version.h" _od_version
       REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH)")
  string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3"
         Torch_VERSION "${_od_version}")
endif()
if(Torch_VERSION VERSION_LESS 2.11)
  message(FATAL_ERROR "Overdrive needs LibTorch 2.11 or newer; found ${Torch_VERSION}.")
endif()
message(STATUS "Overdrive builds for LibTorch ${Torch_VERSION}")
# libtorch.so of a CUDA build exports parts of the C++ library that it was built with: std::filesystem's functions in
# 2.11, which end a program of ours; those of string streams in 2.15, for which our library would need libtorch.so, and
# every program that links ours would have to find it. Who names its own C++ library first takes them from there. The
# preload library has none.
if(TARGET torch_cuda)
  add_link_options(
    "$<$<NOT:$<STREQUAL:$<TARGET_PROPERTY:NAME>,overdrive_autoload>>:LINKER:--push-state,--no-as-needed,-lstdc++,--pop-state>")
endif()
# The config file pushes LibTorch's flags into every directory; we take them through the target.
string(REPLACE "-D_GLIBCXX_USE_CXX11_ABI=1" "" CMAKE_CXX_FLAGS "${CMAKE_CXX_FLAGS}")
