# Finds LibTorch (see tools/setup.sh for how it gets there) and its version.
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
# The config file pushes LibTorch's flags into every directory; we take them through the target.
string(REPLACE "-D_GLIBCXX_USE_CXX11_ABI=1" "" CMAKE_CXX_FLAGS "${CMAKE_CXX_FLAGS}")
