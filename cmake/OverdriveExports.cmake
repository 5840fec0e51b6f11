# overdrive_exports(TARGET): the names that a build of the library shows, each with a version.
#
# docs/abi.md says what the versions promise. The library's own name has no number: programs, the Python package and
# dlopen() look for liboverdrive.so, and the loader compares the versions of the names.
set(OVERDRIVE_ABI "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
set(OVERDRIVE_VERSION_SCRIPT "${PROJECT_BINARY_DIR}/overdrive.map")
configure_file("${PROJECT_SOURCE_DIR}/cmake/overdrive.map.in" "${OVERDRIVE_VERSION_SCRIPT}" @ONLY)

function(overdrive_exports target)
  target_link_options(${target} PRIVATE "-Wl,--version-script=${OVERDRIVE_VERSION_SCRIPT}")
  set_target_properties(${target} PROPERTIES LINK_DEPENDS "${OVERDRIVE_VERSION_SCRIPT}")
endfunction()
