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
overdrive_add_cli_test(bench_forward_ad_quick CALL bench forward_ad --quick --json out.json JSON "rows;0;ratio_hi")

overdrive_add_cli_test(compare_digits CALL compare digits --steps 20 --json out.json PRINTS "equal after each of 20 steps"
                       JSON "comparisons;1;step_ratio;median")
foreach(name lstm rl_many_small deq wgan_gp transformer)
  overdrive_add_cli_test(compare_${name} CALL compare ${name} --steps 6 --block 2 PRINTS "equal after each of 6 steps")
endforeach()
foreach(engine stock overdrive)
  overdrive_add_cli_test(train_on_${engine} CALL train digits_mlp --engine ${engine} --steps 20 --save . --json out.json
                         PRINTS "test accuracy" JSON "trainings;0;quality_value")
endforeach()
overdrive_add_cli_test(bench_memory_quick CALL bench memory --quick --graph scale_chain lstm reentrant --json out.json STATUS 0
                       JSON "rows;0;stock_peak_bytes")
overdrive_add_cli_test(soak_short CALL soak --minutes 0.1 --threads 2 PRINTS "round 3" TIMEOUT 180)
overdrive_add_cli_test(compare_help CALL compare --help PRINTS "Example: overdrive compare digits")

overdrive_add_cli_test(no_command CALL "" STATUS 2 PRINTS "subcommand is required")
overdrive_add_cli_test(unknown_command CALL frobnicate STATUS 2 PRINTS "no command .frobnicate.")
overdrive_add_cli_test(unknown_option CALL env --frobnicate STATUS 2 PRINTS "--frobnicate")
overdrive_add_cli_test(unknown_graph CALL bench engine --graph frob STATUS 2 PRINTS "no graph .frob.")
overdrive_add_cli_test(bad_number CALL bench engine --pairs many STATUS 2 PRINTS "--pairs")
overdrive_add_cli_test(bad_json_path CALL bench engine --quick --json no/such/dir/x.json STATUS 2
                       PRINTS "cannot write .no/such/dir/x.json.")
overdrive_add_cli_test(unknown_trainer CALL compare frob STATUS 2 PRINTS "no trainer .frob.")
overdrive_add_cli_test(no_trainer CALL compare STATUS 2 PRINTS "either a NAME or --all")
overdrive_add_cli_test(no_steps CALL compare digits --steps 0 STATUS 2 PRINTS "--steps")
overdrive_add_cli_test(no_data CALL compare digits --data . STATUS 2 PRINTS "cannot read the data file .*digits-images")
overdrive_add_cli_test(no_checkpoint CALL train digits_mlp --resume . STATUS 2 PRINTS "there is no checkpoint")
overdrive_add_cli_test(unknown_engine CALL train digits_mlp --engine frob STATUS 2 PRINTS "--engine")
