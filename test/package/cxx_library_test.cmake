# overdrive_shared_cxx_library() with compilers that find the shared C++ library, only the one that programs load, or none.
include("${FUNCTION}")
file(REMOVE_RECURSE "${WORK_DIR}")
file(WRITE "${WORK_DIR}/a system/libstdc++.so.6" "")

# A compiler that says of LIBRARY where it is, and of others their name alone, as GCC and clang do.
function(expect what library wanted)
  set(CMAKE_CXX_COMPILER "${WORK_DIR}/compiler")
  file(WRITE "${CMAKE_CXX_COMPILER}" "#!/bin/sh\nname=\${1#-print-file-name=}\n\
[ \"$name\" = '${library}' ] && printf '%s/' '${WORK_DIR}/a system'\necho \"$name\"\n")
  file(CHMOD "${CMAKE_CXX_COMPILER}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  overdrive_shared_cxx_library(options "${WORK_DIR}/made")
  if(NOT options STREQUAL wanted)
    message(FATAL_ERROR "${what}: the options are \"${options}\", not \"${wanted}\"")
  endif()
endfunction()
expect("with the shared library" libstdc++.so "")
expect("with the archive alone" libstdc++.so.6 "-L${WORK_DIR}/made")
file(READ_SYMLINK "${WORK_DIR}/made/libstdc++.so" linked)
if(NOT linked STREQUAL "${WORK_DIR}/a system/libstdc++.so.6")
  message(FATAL_ERROR "the linker gets ${linked}")
endif()
