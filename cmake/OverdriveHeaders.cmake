# overdrive_public_headers(FILES...): headers of this folder that users of the library may include.
#
# Each is copied to include/overdrive/ in the build folder, and installed from there. A user writes
# <overdrive/hooks/saved_tensor_hooks.h> whichever component of hooks/ the header lies in: the components are for
# the readers of the source, and a header can move between them. The copies include each other in the user's way,
# so no folder of the user's that is called engine/ or hooks/ can come first.
set(OVERDRIVE_INCLUDE_DIR "${PROJECT_BINARY_DIR}/include")

# The path below overdrive/ of a header, given by its path from the root of the tree. Only folders that users
# know by name stay part of it.
function(overdrive_public_path variable header)
  # Read by entries and by nobody else.
  if(header MATCHES "^engine/base/mutex\\.h$|/(driver_functions|level_registry|tangents)\\.h$")
    set(header "detail/${header}")
    string(REGEX REPLACE "^(detail/[^/]+)/.*/([^/]+)$" "\\1/\\2" header "${header}")
  elseif(NOT header MATCHES "^engine/base/|^hooks/packers/|^checkpoint/pipeline/")
    string(REGEX REPLACE "^([^/]+)/.*/([^/]+)$" "\\1/\\2" header "${header}")
  endif()
  set(${variable} "${header}" PARENT_SCOPE)
endfunction()

function(overdrive_public_headers)
  foreach(file ${ARGN})
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    file(RELATIVE_PATH header "${PROJECT_SOURCE_DIR}" "${file}")
    overdrive_public_path(public "${header}")
    file(READ "${file}" text)
    # A list would end at semicolons and brackets, so the includes are found first and replaced one by one.
    string(REGEX MATCHALL "#include \"[^\"\n]+\"" includes "${text}")
    foreach(include ${includes})
      string(REGEX REPLACE "#include \"(.+)\"" "\\1" included "${include}")
      overdrive_public_path(included "${included}")
      string(REPLACE "${include}" "#include <overdrive/${included}>" text "${text}")
    endforeach()
    file(CONFIGURE OUTPUT "${OVERDRIVE_INCLUDE_DIR}/overdrive/${public}" CONTENT "${text}" @ONLY)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    set_property(GLOBAL APPEND PROPERTY OVERDRIVE_PUBLIC_HEADERS "${public}")
  endforeach()
endfunction()

# overdrive_forwarding_header(PATH TO): the installed header PATH, whose declarations lie in the header TO.
function(overdrive_forwarding_header path to)
  file(CONFIGURE OUTPUT "${OVERDRIVE_INCLUDE_DIR}/overdrive/${path}"
       CONTENT "#pragma once\n\n#include <overdrive/${to}>\n")
  set_property(GLOBAL APPEND PROPERTY OVERDRIVE_PUBLIC_HEADERS "${path}")
endfunction()
