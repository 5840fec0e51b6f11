# LibTorch, and whether its parts for CUDA are used.
include("${CMAKE_CURRENT_LIST_DIR}/OverdriveLibTorch.cmake")

# tools/setup.sh wrote down where LibTorch is, for a configure that is not told.
if(NOT Torch_DIR AND NOT CMAKE_PREFIX_PATH AND NOT DEFINED ENV{CMAKE_PREFIX_PATH} AND NOT DEFINED ENV{Torch_DIR}
   AND EXISTS "${PROJECT_SOURCE_DIR}/.deps/torch_dir")
  file(STRINGS "${PROJECT_SOURCE_DIR}/.deps/torch_dir" Torch_DIR LIMIT_COUNT 1)
endif()

# The toolkit compiles quantise()'s kernels (hooks/CMakeLists.txt) and the GPU benchmark. Without it a CUDA build of LibTorch
# serves like one for the CPU.
set(OVERDRIVE_HAS_TOOLKIT OFF)
if(NOT OVERDRIVE_CUDA STREQUAL "off" AND NOT CMAKE_CROSSCOMPILING)
  find_package(CUDAToolkit QUIET)
  if(CUDAToolkit_FOUND AND CUDAToolkit_NVCC_EXECUTABLE AND TARGET CUDA::cudart_static)
    set(OVERDRIVE_HAS_TOOLKIT ON)
  elseif(OVERDRIVE_CUDA STREQUAL "on")
    message(FATAL_ERROR "OVERDRIVE_CUDA is on, but there is no CUDA toolkit with nvcc here. Install one, name its folder by \
-DCUDAToolkit_ROOT=FOLDER, or leave OVERDRIVE_CUDA at auto: then Overdrive is built without CUDA kernels of its own.")
  endif()
endif()

if(OVERDRIVE_HAS_TOOLKIT)
  overdrive_find_libtorch(overdrive_torch_fault)
else()
  overdrive_find_libtorch(overdrive_torch_fault CPU_ONLY)
endif()
if(overdrive_torch_fault)
  message(FATAL_ERROR "Overdrive is built against LibTorch, and ${overdrive_torch_fault}.")
endif()

# LibTorch's headers of functorch include it, and LibTorch comes without it. Headers are the same for every processor.
find_path(OVERDRIVE_JSON_INCLUDE_DIR nlohmann/json.hpp HINTS "${OVERDRIVE_TORCH_INCLUDE_DIR}" NO_CMAKE_FIND_ROOT_PATH)
mark_as_advanced(OVERDRIVE_JSON_INCLUDE_DIR)
if(NOT OVERDRIVE_JSON_INCLUDE_DIR)
  message(FATAL_ERROR "LibTorch's headers include nlohmann/json.hpp, which is not here. Install it (Debian: apt install \
nlohmann-json3-dev), or name the folder above nlohmann/ by -DOVERDRIVE_JSON_INCLUDE_DIR=FOLDER.")
endif()

# For the GPU benchmark alone: the library itself needs nothing of these.
if(OVERDRIVE_HAS_TOOLKIT AND EXISTS "${OVERDRIVE_TORCH_LIB_DIR}/libc10_cuda.so")
  add_library(overdrive_torch_cuda INTERFACE)
  target_link_libraries(overdrive_torch_cuda INTERFACE
    "${OVERDRIVE_TORCH_LIB_DIR}/libtorch_cuda.so" "${OVERDRIVE_TORCH_LIB_DIR}/libc10_cuda.so" CUDA::cudart)
endif()

set(overdrive_parts "CPU")
if(OVERDRIVE_TORCH_HAS_CUDA)
  set(overdrive_parts "a GPU build, used as one for the CPU: no CUDA toolkit, or OVERDRIVE_CUDA is off")
  if(OVERDRIVE_HAS_TOOLKIT)
    set(overdrive_parts "a GPU build, with the CUDA toolkit ${CUDAToolkit_VERSION}")
  endif()
endif()
message(STATUS "Overdrive builds for LibTorch ${Torch_VERSION} in ${TORCH_INSTALL_PREFIX} (${overdrive_parts})")
