# What the program promises on its command line: exit status, one clear line, JSON that parses.
function(overdrive_add_cli_test name)
  cmake_parse_arguments(arg "" "STATUS;PRINTS;JSON;TIMEOUT" "CALL" ${ARGN})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 120)
  endif()
  if(NOT arg_STATUS)
    set(arg_STATUS 0)
  endif()
  add_test(NAME cli_${name}
    COMMAND ${CMAKE_COMMAND} "-DPROGRAM=$<TARGET_FILE:overdrive_cli>" "-DCALL=${arg_CALL}" "-DSTATUS=${arg_STATUS}"
      "-DPRINTS=${arg_PRINTS}" "-DJSON=${arg_JSON}" "-DWORK=${CMAKE_CURRENT_BINARY_DIR}/${name}"
      -P "${CMAKE_CURRENT_SOURCE_DIR}/run_and_check.cmake")
  set_tests_properties(cli_${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} LABELS cli)
endfunction()

overdrive_add_cli_test(env CALL env PRINTS "LibTorch found +${Torch_VERSION}")
overdrive_add_cli_test(list CALL list PRINTS "reentrant")
overdrive_add_cli_test(help CALL --help PRINTS "Example: overdrive compare")
overdrive_add_cli_test(bench_help CALL bench engine --help PRINTS "Example: overdrive bench engine")
overdrive_add_cli_test(bench_engine_quick CALL bench engine --quick --json out.json JSON "rows;0;ratio_hi")

overdrive_add_cli_test(no_command CALL "" STATUS 2 PRINTS "subcommand is required")
overdrive_add_cli_test(unknown_command CALL frobnicate STATUS 2 PRINTS "overdrive: ")
overdrive_add_cli_test(unknown_option CALL env --frobnicate STATUS 2 PRINTS "--frobnicate")
overdrive_add_cli_test(unknown_graph CALL bench engine --graph frob STATUS 2 PRINTS "no graph .frob.")
overdrive_add_cli_test(bad_number CALL bench engine --pairs many STATUS 2 PRINTS "--pairs")
overdrive_add_cli_test(bad_json_path CALL bench engine --quick --json no/such/dir/x.json STATUS 2
                       PRINTS "cannot write .no/such/dir/x.json.")
