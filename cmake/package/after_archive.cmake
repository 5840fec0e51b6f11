# Run by CPack on finished packages. A .deb is tidy already.
foreach(file IN LISTS CPACK_PACKAGE_FILES)
  if(file MATCHES "\\.tar\\.gz$")
    execute_process(COMMAND python3 -B "${CPACK_OVERDRIVE_SOURCE_DIR}/cmake/package/tidy_archive.py" "${file}"
                    COMMAND_ERROR_IS_FATAL ANY)
  endif()
endforeach()
