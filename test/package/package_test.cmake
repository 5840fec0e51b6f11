# Installs, moves the tree away, checks what the files say about where to look, builds and runs outside/.
cmake_minimum_required(VERSION 3.25)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE "${WORK_DIR}")
run("${CMAKE_COMMAND}" --install "${BUILD_DIR}" --prefix "${WORK_DIR}/installed")
file(RENAME "${WORK_DIR}/installed" "${WORK_DIR}/moved")

# --- no installed file may point into a build tree or at somebody's LibTorch ---
file(GLOB_RECURSE binaries "${WORK_DIR}/moved/*.so*" "${WORK_DIR}/moved/bin/*")
list(LENGTH binaries count)
if(count EQUAL 0)
  message(FATAL_ERROR "nothing was installed")
endif()
foreach(binary IN LISTS binaries)
  execute_process(COMMAND "${READELF}" -d "${binary}" OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "\\((RPATH|RUNPATH)\\)[^\n]*\\[[^\n]*\\]" paths "${dynamic}")
  foreach(path IN LISTS paths)
    string(REGEX REPLACE ".*\\[(.*)\\]" "\\1" path "${path}")
    string(REPLACE ":" ";" folders "${path}")
    foreach(folder IN LISTS folders)
      if(NOT folder MATCHES "^\\$ORIGIN")
        message(FATAL_ERROR "${binary} looks for libraries in ${folder}")
      endif()
    endforeach()
  endforeach()
  message(STATUS "${binary}: ${paths}")
endforeach()
file(GLOB_RECURSE texts "${WORK_DIR}/moved/*.cmake" "${WORK_DIR}/moved/*.h")
foreach(text IN LISTS texts)
  file(READ "${text}" content)
  foreach(folder IN ITEMS "${BUILD_DIR}" "${TORCH_LIB_DIR}")
    string(FIND "${content}" "${folder}" found)
    if(NOT found EQUAL -1)
      message(FATAL_ERROR "${text} names ${folder}")
    endif()
  endforeach()
endforeach()

# --- the outside project ---
run("${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/outside" -B "${WORK_DIR}/outside" -G "${GENERATOR}"
    -D "CMAKE_CXX_COMPILER=${CXX_COMPILER}" -D CMAKE_BUILD_TYPE=Release
    -D "CMAKE_PREFIX_PATH=${WORK_DIR}/moved" -D "Torch_DIR=${TORCH_DIR}"
    -D "QUICKSTART=${CMAKE_CURRENT_LIST_DIR}/../../examples/quickstart.cpp")
run("${CMAKE_COMMAND}" --build "${WORK_DIR}/outside")
run("${WORK_DIR}/outside/outside")
run("${WORK_DIR}/outside/quickstart")
run("${WORK_DIR}/outside/smallest")

# --- beside find_package(Torch), before and after it, and LibTorch named as PyTorch's documentation teaches ---
# The config of a CUDA build of LibTorch wants the CUDA toolkit.
if(NOT TORCH_HAS_CUDA)
  cmake_path(GET TORCH_DIR PARENT_PATH prefix_path)
  foreach(when BEFORE AFTER)
    run("${CMAKE_COMMAND}" -E env "CMAKE_PREFIX_PATH=${WORK_DIR}/moved:${prefix_path}"
        "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/beside" -B "${WORK_DIR}/beside_${when}" -G "${GENERATOR}"
        -D "CMAKE_CXX_COMPILER=${CXX_COMPILER}" -D TORCH_${when}=ON)
    run("${CMAKE_COMMAND}" --build "${WORK_DIR}/beside_${when}")
    run("${WORK_DIR}/beside_${when}/smallest")
  endforeach()
endif()

# --- no LibTorch where Torch_DIR points, and one that is too old ---
function(refuses torch_dir words)
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/beside" -B "${WORK_DIR}/refused" -G "${GENERATOR}"
    -D "CMAKE_CXX_COMPILER=${CXX_COMPILER}" -D "CMAKE_PREFIX_PATH=${WORK_DIR}/moved" -D "Torch_DIR=${torch_dir}"
    RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(status EQUAL 0 OR NOT said MATCHES "${words}")
    message(FATAL_ERROR "find_package(Overdrive) with Torch_DIR=${torch_dir} should have said \"${words}\": ${said}")
  endif()
endfunction()
set(old "${WORK_DIR}/old libtorch")
file(WRITE "${old}/lib/libtorch_cpu.so" "")
file(WRITE "${old}/lib/libc10.so" "")
file(WRITE "${old}/include/torch/csrc/api/include/torch/version.h"
  "#define TORCH_VERSION_MAJOR 1\n#define TORCH_VERSION_MINOR 13\n#define TORCH_VERSION_PATCH 1\n")
refuses("${WORK_DIR}" "no LibTorch 2.11 or newer was found; Torch_DIR is .*pip install torch")
refuses("${old}" "LibTorch 1.13.1 in .*: too old")

# --- the guides ---
foreach(page "guide/forward_mode.md" "guide/checkpointing.md" "guide/saved_tensors.md" "performance.md")
  if(NOT EXISTS "${WORK_DIR}/moved/share/overdrive/docs/${page}")
    message(FATAL_ERROR "share/overdrive/docs/${page} is not installed")
  endif()
endforeach()
foreach(header "forward_ad/level_registry.h" "forward_ad/driver_functions.h" "engine/base/mutex.h")
  if(EXISTS "${WORK_DIR}/moved/include/overdrive/${header}")
    message(FATAL_ERROR "overdrive/${header} is for the project itself, but is installed beside the entries")
  endif()
endforeach()

# --- the headers, by plain g++, with folders of the user's own in front that are called as ours ---
set(hostile "${WORK_DIR}/hostile")
foreach(top IN ITEMS engine hooks forward_ad checkpoint)
  file(GLOB headers "${WORK_DIR}/moved/include/overdrive/${top}/*.h")
  foreach(header IN LISTS headers)
    cmake_path(GET header FILENAME name)
    file(WRITE "${hostile}/${top}/${name}" "#error the user's own ${top}/${name} was taken for Overdrive's\n")
  endforeach()
endforeach()
set(compile "${CXX_COMPILER}" -std=c++20 -fsyntax-only "-I${hostile}" "-I${WORK_DIR}/moved/include" -isystem
    "${TORCH_LIB_DIR}/../include" -isystem "${TORCH_LIB_DIR}/../include/torch/csrc/api/include")
# Each entry in front of all else; LibTorch's headers take ten seconds a time, so few sources do it. The outside project
# begins with those of checkpoint/ and engine/, and the other headers follow the one of forward_ad/.
file(GLOB_RECURSE headers RELATIVE "${WORK_DIR}/moved/include" "${WORK_DIR}/moved/include/*.h")
set(all "#include <overdrive/forward_ad/forward_ad.h>\n")
foreach(header IN LISTS headers)
  string(APPEND all "#include <${header}>\n")
endforeach()
file(WRITE "${WORK_DIR}/all_headers.cpp" "${all}")
run(${compile} "${WORK_DIR}/all_headers.cpp")
foreach(entry IN ITEMS engine/c_api hooks/hooks)
  file(WRITE "${WORK_DIR}/entry.cpp" "#include <overdrive/${entry}.h>\n")
  run(${compile} "${WORK_DIR}/entry.cpp")
endforeach()

# --- the installed program, with the data that was installed beside it ---
set(program "${WORK_DIR}/moved/bin/overdrive")
if(EXISTS "${program}")
  set(train "${CMAKE_COMMAND}" -E env "LD_LIBRARY_PATH=${TORCH_LIB_DIR}" "${program}" train digits_mlp --steps 2)
  run(${train})
  # It is that data, and not the source tree's: without a file of it there is none.
  file(REMOVE "${WORK_DIR}/moved/share/overdrive/data/digits-labels.idx1-ubyte")
  execute_process(COMMAND ${train} RESULT_VARIABLE status ERROR_VARIABLE said)
  if(status EQUAL 0 OR NOT said MATCHES "cannot read the data file .*moved/share/overdrive/data")
    message(FATAL_ERROR "the installed program did not look for its data in share/overdrive/data: ${said}")
  endif()
endif()
