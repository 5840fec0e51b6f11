# overdrive_for_older_systems(TARGET LIBRARY...): links a library such that it loads with the C library of 2018, as LibTorch's
# own builds do (manylinux_2_28).
#
# A linker binds a function to its newest version. glibc 2.34 gave pthread_create() and dlsym() a new version when they moved
# into libc.so.6, and kept the old one. So the target is linked with stubs first, one for each LIBRARY: libraries that define
# the old versions, under the names of the libraries that had them. Only the linker sees the stubs. A function that has no
# old version must not be used, or engine/base/older_systems.cpp stands in for it (test/package/symbols_test.py looks).
set(OVERDRIVE_OLDEST_GLIBC 2.28)
set(_od_stubs "${PROJECT_BINARY_DIR}/older_systems")

# Sets VARIABLE to a list of "function version": the functions of a file whose newest version is too new, with the newest
# that is not. With ALL the other functions too, as they are.
function(_od_old_versions variable file all)
  execute_process(COMMAND "${CMAKE_NM}" -D --defined-only --with-symbol-versions "${file}" OUTPUT_VARIABLE listed ERROR_QUIET)
  string(REGEX MATCHALL " [TWi] [^ \n]+@@GLIBC_[0-9.]+" functions "${listed}")
  set(found)
  foreach(function ${functions})
    string(REGEX MATCH " ([^ @]+)@@GLIBC_(.+)$" function "${function}")
    set(name "${CMAKE_MATCH_1}")
    set(newest "${CMAKE_MATCH_2}")
    set(best "${newest}")
    if(newest VERSION_GREATER OVERDRIVE_OLDEST_GLIBC)
      set(best 0)
      string(REGEX MATCHALL " ${name}@GLIBC_[0-9.]+" older "${listed}")
      foreach(candidate ${older})
        string(REGEX REPLACE "^.*@GLIBC_" "" version "${candidate}")
        if(version VERSION_LESS_EQUAL OVERDRIVE_OLDEST_GLIBC AND version VERSION_GREATER best)
          set(best "${version}")
        endif()
      endforeach()
    endif()
    if(best AND (all OR NOT best STREQUAL newest))
      list(APPEND found "${name} GLIBC_${best}")
    endif()
  endforeach()
  set(${variable} "${found}" PARENT_SCOPE)
endfunction()

# Writes and links the stub LIBRARY, with the symbols "function version" of ARGN.
function(_od_make_stub library)
  set(code)
  set(script)
  foreach(symbol ${ARGN})
    string(REPLACE " " ";" symbol "${symbol}")
    list(GET symbol 0 name)
    list(GET symbol 1 version)
    string(APPEND code ".globl ${name}\n.type ${name}, %function\n${name}:\n")
    string(APPEND names_${version} " ${name};")
    list(APPEND versions ${version})
  endforeach()
  list(REMOVE_DUPLICATES versions)
  foreach(version ${versions})
    string(APPEND script "${version} { global:${names_${version}} };\n")
  endforeach()
  set(made)
  if(EXISTS "${_od_stubs}/${library}.s")
    file(READ "${_od_stubs}/${library}.s" made)
  endif()
  if(made STREQUAL code AND EXISTS "${_od_stubs}/${library}")
    return()  # a new one would have the library linked again
  endif()
  file(WRITE "${_od_stubs}/${library}.s" "${code}")
  file(WRITE "${_od_stubs}/${library}.map" "${script}")
  execute_process(
    COMMAND "${CMAKE_C_COMPILER}" -shared -nostdlib -Wl,-soname,${library} -Wl,--version-script=${library}.map
            -o ${library} ${library}.s
    WORKING_DIRECTORY "${_od_stubs}" RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE said)
  if(NOT status EQUAL 0)
    file(REMOVE "${_od_stubs}/${library}")
    message(STATUS "The library is for this system and newer ones, because a stub of ${library} cannot be linked: ${said}")
  endif()
endfunction()

# The library that had a function of today's libc.so.6 before 2.34; nothing for functions of libc.so.6 itself.
function(_od_owner_before variable name)
  set(owner)
  if(name MATCHES "^(__)?(pthread|sem)_")
    set(owner libpthread.so.0)
  elseif(name MATCHES "^dl")
    set(owner libdl.so.2)
  elseif(name MATCHES "^shm_")
    set(owner librt.so.1)
  endif()
  set(${variable} "${owner}" PARENT_SCOPE)
endfunction()

function(_od_make_stubs)
  foreach(library c m)
    execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=lib${library}.so.6 OUTPUT_VARIABLE file_${library}
                    OUTPUT_STRIP_TRAILING_WHITESPACE)
  endforeach()
  _od_old_versions(moved "${file_c}" OFF)
  foreach(symbol ${moved})
    _od_owner_before(owner "${symbol}")
    if(owner)
      list(APPEND symbols_of_${owner} "${symbol}")
    endif()
  endforeach()
  # The linker passes over a library whose name it has seen, so this stub stands for all of it.
  _od_old_versions(symbols_of_libm.so.6 "${file_m}" ON)
  foreach(owner libpthread.so.0 libdl.so.2 librt.so.1 libm.so.6)
    if(symbols_of_${owner})
      _od_make_stub(${owner} ${symbols_of_${owner}})
    endif()
  endforeach()
endfunction()

function(overdrive_for_older_systems target)
  foreach(library ${ARGN})
    if(EXISTS "${_od_stubs}/${library}")
      target_link_options(${target} PRIVATE "LINKER:--push-state,--no-as-needed,${_od_stubs}/${library},--pop-state")
      set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${_od_stubs}/${library}")
    endif()
  endforeach()
endfunction()

# A sanitizer replaces some of these functions, and its library is for this system alone.
if(NOT OVERDRIVE_SANITIZE)
  file(MAKE_DIRECTORY "${_od_stubs}")
  _od_make_stubs()
endif()
