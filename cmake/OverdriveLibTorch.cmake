# overdrive_find_libtorch(RESULT [CPU_ONLY]): LibTorch by its own files, as the target Overdrive::LibTorch. RESULT becomes
# "" or says what is wrong. CPU_ONLY leaves the parts for GPUs out. The build includes this file, and so does the installed
# package.
#
# LibTorch's own CMake files are not asked, because those of a CUDA build stop without the CUDA toolkit. Where the program
# has called find_package(Torch) before, its targets are taken. Sets TORCH_INSTALL_PREFIX, OVERDRIVE_TORCH_LIB_DIR,
# OVERDRIVE_TORCH_INCLUDE_DIR, Torch_VERSION, and OVERDRIVE_TORCH_HAS_CUDA: whether this LibTorch has parts for GPUs.

# The folders that the caller names, best first.
function(_overdrive_libtorch_places result)
  set(places)
  # A list in the environment has colons.
  string(REPLACE ":" ";" prefixes "$ENV{CMAKE_PREFIX_PATH}")
  foreach(place "${Torch_DIR}" "$ENV{Torch_DIR}" "${Torch_ROOT}" "$ENV{Torch_ROOT}" ${CMAKE_PREFIX_PATH} ${prefixes})
    if(place)
      # The folder itself; that of TorchConfig.cmake; that which torch.utils.cmake_prefix_path names; site-packages.
      list(APPEND places "${place}" "${place}/../../.." "${place}/../.." "${place}/torch")
    endif()
  endforeach()
  set(${result} ${places} PARENT_SCOPE)
endfunction()

# That of the Python on the PATH, for whoever has typed `pip install torch`.
function(_overdrive_libtorch_of_python result)
  set(${result} "" PARENT_SCOPE)
  if(CMAKE_CROSSCOMPILING)
    return()
  endif()
  find_program(OVERDRIVE_PYTHON_OF_TORCH NAMES python3 python)
  mark_as_advanced(OVERDRIVE_PYTHON_OF_TORCH)
  if(OVERDRIVE_PYTHON_OF_TORCH)
    # Looks for the package without importing it, which takes seconds.
    execute_process(
      COMMAND "${OVERDRIVE_PYTHON_OF_TORCH}" -c
        "from importlib.util import find_spec; print(find_spec('torch').submodule_search_locations[0])"
      OUTPUT_VARIABLE folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
    if(status EQUAL 0)
      set(${result} "${folder}" PARENT_SCOPE)
    endif()
  endif()
endfunction()

# Sets include, lib and version for the LibTorch in a folder, or clears include.
function(_overdrive_look_into prefix)
  set(include "" PARENT_SCOPE)
  foreach(folder lib "lib/${CMAKE_LIBRARY_ARCHITECTURE}" lib64)
    set(lib "${prefix}/${folder}")
    if(EXISTS "${lib}/libtorch_cpu.so" AND EXISTS "${lib}/libc10.so")
      foreach(header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
        if(EXISTS "${prefix}/include/${header}")
          file(STRINGS "${prefix}/include/${header}" lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
          if(lines MATCHES "MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+)")
            set(version "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}" PARENT_SCOPE)
            set(include "${prefix}/include" PARENT_SCOPE)
            set(lib "${lib}" PARENT_SCOPE)
            return()
          endif()
        endif()
      endforeach()
    endif()
  endforeach()
endfunction()

# Sets prefix, include, lib and version of the first LibTorch that is new enough; else `passed` has the ones that are not.
macro(_overdrive_first_libtorch)
  _overdrive_libtorch_places(_places)
  # A Torch_DIR that holds none is a mistake to be told, and no reason to take another.
  if(NOT Torch_DIR)
    _overdrive_libtorch_of_python(_python)
    # A distribution's package comes last.
    list(APPEND _places ${_python} /usr/local /usr)
  endif()
  set(passed)
  foreach(_place ${_places})
    get_filename_component(prefix "${_place}" ABSOLUTE)
    _overdrive_look_into("${prefix}")
    if(include AND version VERSION_LESS 2.11)
      list(APPEND passed "LibTorch ${version} in ${prefix}")
      set(include "")
    endif()
    if(include)
      break()
    endif()
  endforeach()
endmacro()

function(_overdrive_imported name file)
  if(NOT TARGET Overdrive::${name})
    add_library(Overdrive::${name} SHARED IMPORTED GLOBAL)
    set_target_properties(Overdrive::${name} PROPERTIES IMPORTED_LOCATION "${file}")
  endif()
endfunction()

# The program needs LibTorch's libraries also where it calls nothing in them: the installed library of Overdrive has no
# path to them. libtorch.so brings the parts for GPUs. In a CUDA build it exports parts of the C++ library of its own
# build (those of std::filesystem in 2.11, of string streams in 2.15), so the C++ library comes before it.
function(_overdrive_make_target include lib cuda)
  set(needed "-Wl,--push-state,--no-as-needed")
  if(cuda)
    string(APPEND needed ",-lstdc++,\"${lib}/libtorch.so\"")
  endif()
  string(APPEND needed ",\"${lib}/libtorch_cpu.so\",\"${lib}/libc10.so\",--pop-state")
  _overdrive_imported(torch_cpu "${lib}/libtorch_cpu.so")
  _overdrive_imported(c10 "${lib}/libc10.so")
  add_library(Overdrive::LibTorch INTERFACE IMPORTED GLOBAL)
  set_target_properties(Overdrive::LibTorch PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${include};${include}/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "${needed};Overdrive::torch_cpu;Overdrive::c10")
  # Which parts LibTorch's distributed headers may show, as its own CMake files say.
  set(own "${lib}/../share/cmake/Caffe2/Caffe2Targets.cmake")
  if(EXISTS "${own}")
    file(READ "${own}" text)
    if(text MATCHES "\\(torch_cpu PROPERTIES[ \n]+INTERFACE_COMPILE_DEFINITIONS \"(USE_[A-Z0-9_;]*)\"")
      set_target_properties(Overdrive::LibTorch PROPERTIES INTERFACE_COMPILE_DEFINITIONS "${CMAKE_MATCH_1}")
    endif()
  endif()
endfunction()

# The targets of a find_package(Torch) before.
macro(_overdrive_take_targets)
  get_target_property(_c10 c10 LOCATION)
  get_filename_component(lib "${_c10}" DIRECTORY)
  get_filename_component(prefix "${lib}" DIRECTORY)
  if(TORCH_INSTALL_PREFIX)
    set(prefix "${TORCH_INSTALL_PREFIX}")
  endif()
  _overdrive_look_into("${prefix}")
  add_library(Overdrive::LibTorch INTERFACE IMPORTED GLOBAL)
  # LibTorch's config makes the linker drop libc10 from a program that calls nothing in it.
  set_target_properties(Overdrive::LibTorch PROPERTIES INTERFACE_LINK_LIBRARIES
    "torch;-Wl,--push-state,--no-as-needed,\"$<TARGET_FILE:c10>\",--pop-state")
endmacro()

function(overdrive_find_libtorch result)
  cmake_parse_arguments(PARSE_ARGV 1 arg "CPU_ONLY" "" "")
  set(${result} "" PARENT_SCOPE)
  if(TARGET Overdrive::LibTorch)
    return()
  endif()
  if(TARGET torch AND TARGET c10)
    _overdrive_take_targets()
  else()
    _overdrive_first_libtorch()
  endif()
  if(NOT include)
    set(text "no LibTorch 2.11 or newer was found")
    if(passed)
      list(REMOVE_DUPLICATES passed)
      list(JOIN passed ", " passed)
      string(APPEND text " (${passed}: too old)")
    endif()
    if(Torch_DIR)
      string(APPEND text "; Torch_DIR is ${Torch_DIR}")
    endif()
    set(${result} "${text}. Any build of PyTorch serves, for the CPU or for CUDA: `pip install torch`, or name the folder of a \
LibTorch with -DTorch_DIR=FOLDER" PARENT_SCOPE)
    return()
  endif()
  set(cuda OFF)
  foreach(part cuda hip xpu)
    if(EXISTS "${lib}/libtorch_${part}.so")
      set(cuda ON)
    endif()
  endforeach()
  if(NOT TARGET Overdrive::LibTorch)
    if(cuda AND NOT arg_CPU_ONLY)
      _overdrive_make_target("${include}" "${lib}" ON)
    else()
      _overdrive_make_target("${include}" "${lib}" OFF)
    endif()
  endif()
  set(TORCH_INSTALL_PREFIX "${prefix}" PARENT_SCOPE)
  set(OVERDRIVE_TORCH_LIB_DIR "${lib}" PARENT_SCOPE)
  set(OVERDRIVE_TORCH_INCLUDE_DIR "${include}" PARENT_SCOPE)
  set(OVERDRIVE_TORCH_HAS_CUDA ${cuda} PARENT_SCOPE)
  set(Torch_VERSION "${version}" PARENT_SCOPE)
endfunction()
