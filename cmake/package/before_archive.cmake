# Run by CPack over the installed files, before they are packed: adds the list of files, parts and licences.
set(root "${CPACK_TEMPORARY_INSTALL_DIRECTORY}")
if(CPACK_GENERATOR STREQUAL "DEB")
  string(APPEND root "${CPACK_DEBIAN_PACKAGING_INSTALL_PREFIX}")
endif()
execute_process(COMMAND python3 -B "${CPACK_OVERDRIVE_SOURCE_DIR}/tools/make_spdx.py" "${root}" "${CPACK_OVERDRIVE_SPDX_FACTS}"
                COMMAND_ERROR_IS_FATAL ANY)
