# What `cmake --install` puts where, and the package that find_package(Overdrive) reads.
include(CMakePackageConfigHelpers)

set(OVERDRIVE_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/Overdrive")

# The build tree's RPATH names the LibTorch that was built against. An installed file must not: the
# program that loads it has a LibTorch already, and it may lie anywhere.
set(overdrive_libraries overdrive)
foreach(library overdrive_step overdrive_autoload)
  if(TARGET ${library})
    list(APPEND overdrive_libraries ${library})
  endif()
endforeach()
set_target_properties(${overdrive_libraries} PROPERTIES INSTALL_RPATH "$ORIGIN")
install(TARGETS ${overdrive_libraries} EXPORT OverdriveTargets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
get_property(overdrive_headers GLOBAL PROPERTY OVERDRIVE_PUBLIC_HEADERS)
foreach(header ${overdrive_headers})
  cmake_path(GET header PARENT_PATH folder)
  install(FILES "${OVERDRIVE_INCLUDE_DIR}/overdrive/${header}"
          DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/overdrive/${folder}")
endforeach()
# The guides, with the pages that they refer to.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/docs/" DESTINATION share/overdrive/docs FILES_MATCHING PATTERN "*.md" PATTERN "abi.txt")
install(EXPORT OverdriveTargets NAMESPACE Overdrive:: DESTINATION "${OVERDRIVE_CMAKE_DIR}")

if(TARGET overdrive_cli)
  file(RELATIVE_PATH bin_to_lib "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(overdrive_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS overdrive_cli RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
  # A sanitized program prints more than its help.
  if(NOT OVERDRIVE_SANITIZE AND NOT OVERDRIVE_COVERAGE)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    set(page "${PROJECT_BINARY_DIR}/overdrive.1")
    add_custom_command(OUTPUT "${page}"
      COMMAND Python3::Interpreter -B "${PROJECT_SOURCE_DIR}/tools/make_man.py" "$<TARGET_FILE:overdrive_cli>" "${page}"
      DEPENDS overdrive_cli "${PROJECT_SOURCE_DIR}/tools/make_man.py"
      COMMENT "Writing the man page"
      VERBATIM)
    add_custom_target(overdrive_man ALL DEPENDS "${page}")
    install(FILES "${page}" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1")
  endif()
  # What `compare --app` preloads into runs on stock.
  install(TARGETS overdrive_held_off LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  # Where the program looks first (examples/data/data_files.cpp); the README has sources and licences.
  set(data "${PROJECT_SOURCE_DIR}/examples/data")
  install(FILES "${data}/README.md" "${data}/alice.txt" "${data}/burgers.csv" "${data}/digits-images.idx3-ubyte"
                "${data}/digits-labels.idx1-ubyte"
          DESTINATION share/overdrive/data)
endif()

string(REGEX MATCH "^[0-9]+\\.[0-9]+" OVERDRIVE_TORCH_MINOR "${Torch_VERSION}")
configure_package_config_file(
  "${CMAKE_CURRENT_LIST_DIR}/OverdriveConfig.cmake.in" "${PROJECT_BINARY_DIR}/cmake/OverdriveConfig.cmake"
  INSTALL_DESTINATION "${OVERDRIVE_CMAKE_DIR}" NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/cmake/OverdriveConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
  "${CMAKE_CURRENT_LIST_DIR}/OverdriveLibTorch.cmake"
  "${PROJECT_BINARY_DIR}/cmake/OverdriveConfig.cmake" "${PROJECT_BINARY_DIR}/cmake/OverdriveConfigVersion.cmake"
  DESTINATION "${OVERDRIVE_CMAKE_DIR}")
