# Debian's cross compiler for 64-bit ARM, and qemu for the programs that the compiler makes. tools/check_arm.sh fetches
# the libraries of ARM that these need.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
cmake_path(SET _deps NORMALIZE "${CMAKE_CURRENT_LIST_DIR}/../../.deps/aarch64")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L "${_deps}/root")
# This machine's libraries and headers are for another processor. Packages of headers alone are for every processor.
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
# A linker for another processor does not look where LibTorch's libraries find theirs. The loader does.
set(CMAKE_EXE_LINKER_FLAGS_INIT -Wl,--allow-shlib-undefined)
