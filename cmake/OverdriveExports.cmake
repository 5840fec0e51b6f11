# overdrive_exports(TARGET): the names that a build of the library shows, each with a version, and its own name.
#
# docs/abi.md says what the two versions promise. The SONAME has the same number: a program that was linked with one
# number does not start with another.
set(OVERDRIVE_ABI "${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}")
set(OVERDRIVE_SONAME "liboverdrive.so.${OVERDRIVE_ABI}")
set(OVERDRIVE_VERSION_SCRIPT "${PROJECT_BINARY_DIR}/overdrive.map")
configure_file("${PROJECT_SOURCE_DIR}/cmake/overdrive.map.in" "${OVERDRIVE_VERSION_SCRIPT}" @ONLY)

function(overdrive_exports target)
  target_link_options(${target} PRIVATE "-Wl,--version-script=${OVERDRIVE_VERSION_SCRIPT}")
  set_target_properties(${target} PROPERTIES
    VERSION "${OVERDRIVE_ABI}" SOVERSION "${OVERDRIVE_ABI}" LINK_DEPENDS "${OVERDRIVE_VERSION_SCRIPT}")
endfunction()
