# `make package`: a .deb and a .tar.gz of what `cmake --install` puts where, by CPack. Equal builds give equal bytes:
# package/settings.cmake fixes the times, package/tidy_archive.py the order of a .tar.gz.
set(OVERDRIVE_PACKAGE_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/package")
string(TOLOWER "${CMAKE_SYSTEM_NAME}" overdrive_system)

set(CPACK_PACKAGE_NAME overdrive)
set(CPACK_PACKAGE_VENDOR Overdrive)
# The owners have not named an address yet; a .deb must have one.
set(CPACK_PACKAGE_CONTACT "The Overdrive project <overdrive@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "autograd engine for LibTorch ${OVERDRIVE_TORCH_MINOR} programs")
set(CPACK_PACKAGE_DESCRIPTION
"Replaces the autograd engine of a running LibTorch program and computes the
same gradients, bit for bit. Holds the library, its headers and CMake files, the
preload library, the program overdrive and the guides.
.
This build works with LibTorch ${OVERDRIVE_TORCH_MINOR} only. LibTorch is not among the dependencies,
because Debian has no package of this version: a program brings its LibTorch,
and the program overdrive finds LibTorch by LD_LIBRARY_PATH or by a file in
/etc/ld.so.conf.d. See /usr/share/overdrive/docs/guide/installing.md.")
set(CPACK_PACKAGE_FILE_NAME
    "overdrive-${PROJECT_VERSION}-torch${OVERDRIVE_TORCH_MINOR}-${overdrive_system}-${CMAKE_SYSTEM_PROCESSOR}")
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/package")
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_STRIP_FILES ON)
set(CPACK_SOURCE_GENERATOR "")

set(CPACK_GENERATOR TGZ)
# dpkg-shlibdeps reads the C and C++ libraries' packages and versions off the files.
find_program(OVERDRIVE_SHLIBDEPS dpkg-shlibdeps)
if(OVERDRIVE_SHLIBDEPS)
  list(APPEND CPACK_GENERATOR DEB)
endif()
set(CPACK_DEBIAN_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_VERSION "${PROJECT_VERSION}+torch${OVERDRIVE_TORCH_MINOR}")
set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${TORCH_INSTALL_PREFIX}/lib")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "cmake, g++")
# For ldconfig to run.
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)

# Read by the scripts, and by the test of the packages.
set(CPACK_PROJECT_CONFIG_FILE "${OVERDRIVE_PACKAGE_SCRIPTS}/settings.cmake")
set(CPACK_PRE_BUILD_SCRIPTS "${OVERDRIVE_PACKAGE_SCRIPTS}/before_archive.cmake")
set(CPACK_POST_BUILD_SCRIPTS "${OVERDRIVE_PACKAGE_SCRIPTS}/after_archive.cmake")
set(CPACK_OVERDRIVE_SOURCE_DIR "${PROJECT_SOURCE_DIR}")
set(CPACK_OVERDRIVE_SPDX_FACTS "${PROJECT_BINARY_DIR}/spdx_facts.json")

# What the files are made of, as this build found it.
if(TARGET overdrive_cli)
  find_package(CLI11 REQUIRED)
  find_package(nlohmann_json REQUIRED)
endif()
set(OVERDRIVE_CUDART_VERSION "")
if(OVERDRIVE_NVCC_WORKS)
  set(OVERDRIVE_CUDART_VERSION "${CUDAToolkit_VERSION}")
endif()
configure_file("${OVERDRIVE_PACKAGE_SCRIPTS}/spdx_facts.json.in" "${CPACK_OVERDRIVE_SPDX_FACTS}" @ONLY)
include(CPack)
