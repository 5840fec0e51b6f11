# Read by CPack before it makes a package: the time that files in it have. SOURCE_DATE_EPOCH if it is set, else the
# last commit's, else that of a checkout without history.
if("$ENV{SOURCE_DATE_EPOCH}" STREQUAL "")
  execute_process(COMMAND git -C "${CPACK_OVERDRIVE_SOURCE_DIR}" log -1 --format=%ct
                  OUTPUT_VARIABLE seconds OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0 OR NOT seconds MATCHES "^[0-9]+$")
    set(seconds 1767225600)  # 2026-01-01
  endif()
  set(ENV{SOURCE_DATE_EPOCH} "${seconds}")
endif()
