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
overdrive_add_cli_test(env_with_a_bad_switch CALL env PRINTS "off: OVERDRIVE is .2., but must be one of 0.1")
set_property(TEST cli_env_with_a_bad_switch PROPERTY ENVIRONMENT OVERDRIVE=2)
overdrive_add_cli_test(list CALL list PRINTS "pinn .*forward mode inside forward mode.*reentrant")
overdrive_add_cli_test(help CALL --help PRINTS "Example: overdrive compare")
overdrive_add_cli_test(version CALL --version PRINTS "overdrive ${PROJECT_VERSION}, built for LibTorch ${Torch_VERSION}")
overdrive_add_cli_test(help_of_a_command CALL help compare PRINTS "Example: overdrive compare digits")
overdrive_add_cli_test(help_of_a_command_below CALL help bench hooks PRINTS "Example: overdrive bench hooks")
overdrive_add_cli_test(help_alone CALL help PRINTS "Example: overdrive compare")
overdrive_add_cli_test(help_of_all CALL help --all PRINTS "# overdrive env\n.*# overdrive bench hooks\n.*Usage: overdrive bench hooks ")
overdrive_add_cli_test(help_of_no_command CALL help frobnicate STATUS 2 PRINTS "no command .frobnicate.")
overdrive_add_cli_test(bench_help CALL bench engine --help PRINTS "Example: overdrive bench engine")
overdrive_add_cli_test(bench_engine_quick CALL bench engine --quick --json out.json JSON "rows;0;ratio_hi")
overdrive_add_cli_test(bench_hooks_quick CALL bench hooks --quick --json out.json JSON "rows;0;ns_hi")
if(TARGET overdrive_devices_bench)
  overdrive_add_cli_test(bench_devices_quick CALL bench devices --quick --json out.json PRINTS "bare hand-over"
                         JSON "rows;4;overdrive_switches")
endif()
overdrive_add_cli_test(bench_checkpoint_quick CALL bench checkpoint --quick --json out.json JSON "rows;0;figure")
overdrive_add_cli_test(bench_nan_quick CALL bench nan --quick --json out.json JSON "rows;3;anomaly_ratio"
                       PRINTS "anomaly mode .95 %.\n6 layers")
overdrive_add_cli_test(bench_step_files_quick CALL bench step-files --quick --json out.json JSON "rows;0;ratio")
overdrive_add_cli_test(bench_capture_quick CALL bench capture --quick --json out.json JSON "rows;0;ratio_hi"
                       PRINTS "captured by stock .95 %.\nmlp 3x64 .*same bits\n")
overdrive_add_cli_test(bench_forward_ad_quick CALL bench forward_ad --quick --json out.json JSON "rows;0;ratio_hi")

overdrive_add_cli_test(graph_page CALL graph digits_mlp -o out.html PRINTS "nodes, .* bytes held; out.html")
overdrive_add_cli_test(graph_json CALL graph lstm -o out.json PRINTS "edges" JSON "nodes;0;gradients")
overdrive_add_cli_test(graph_of_another_kind CALL graph digits_mlp -o out.png STATUS 2 PRINTS "ends neither with .html")
overdrive_add_cli_test(replay CALL replay "mlp 3x64" PRINTS "60 calls: .* replayed.*lanes: .*direct aten::addmm")
overdrive_add_cli_test(replay_of_no_model CALL replay frobnicate STATUS 2 PRINTS "no model .frobnicate.; there are .ensemble 8x64., ")
overdrive_add_cli_test(replay_of_another_kind CALL replay "mlp 3x64" -o out.png STATUS 2 PRINTS "ends neither with .html nor with .json")
overdrive_add_cli_test(replay_without_lanes CALL replay "mlp 3x64" --lanes 1 -o out.html STATUS 2 PRINTS "with --lanes 1 there are no lanes to draw")
overdrive_add_cli_test(replay_on_too_many CALL replay "mlp 3x64" --lanes 65 STATUS 2 PRINTS "65 not in range")
overdrive_add_cli_test(replay_into_no_folder CALL replay "mlp 3x64" -o nowhere/out.html STATUS 2 PRINTS "nowhere.*No such file")
set(step_files "${PROJECT_SOURCE_DIR}/test/replay/data")
overdrive_add_cli_test(step CALL step ${step_files}/version_2.od --check --bench
                       PRINTS "have the bits that they had.*operators.*recorded eager us.*ratio.*step 0 +5 +[0-9.]+ +[0-9.]+ +[0-9]+.[0-9]+ +[0-9.]+")
overdrive_add_cli_test(step_of_the_first_version CALL step ${step_files}/version_1.od --bench PRINTS "step 0 +5 +[0-9.]+ +- +- +[0-9.]+")
overdrive_add_cli_test(step_that_is_none CALL step ${step_files}/../step_file_test.cpp STATUS 2
                       PRINTS "step_file_test.cpp: this is no step file")
overdrive_add_cli_test(step_that_is_a_folder CALL step ${step_files} STATUS 2 PRINTS "data: it is a folder")
overdrive_add_cli_test(step_that_is_missing CALL step nothing.od STATUS 2 PRINTS "nothing.od: it cannot be opened.*No such file")
overdrive_add_cli_test(compare_digits CALL compare digits --steps 20 --json out.json PRINTS "equal after each of 20 steps"
                       JSON "comparisons;1;step_ratio;median")
overdrive_add_cli_test(compare_all CALL compare --all --steps 4 --block 2 --json out.json PRINTS "bits equal in all"
                       JSON "comparisons;8;step_ratio;median" TIMEOUT 300)
# The tenth replay of a step is compared with an eager call. Where two steps leave each other gradients, the other step is
# recorded anew after that.
overdrive_add_cli_test(compare_captured CALL compare digits_mlp --capture --steps 30 --json out.json
                       PRINTS "captured: 25 of 30 calls were replayed.*equal after each of 30 steps"
                       JSON "comparisons;0;captured;step_ratio;median")
overdrive_add_cli_test(compare_captured_shared_gradients CALL compare wgan_gp --capture --steps 8
                       PRINTS "captured: 13 of 24 calls were replayed.*equal after each of 8 steps")
# By parts, on two threads; by functions of a solver.
overdrive_add_cli_test(compare_captured_parts CALL compare rl_many_small --capture --steps 8
                       PRINTS "captured: [1-9][0-9]* of [0-9]+ calls were replayed.*equal after each of 8 steps")
overdrive_add_cli_test(compare_captured_functions CALL compare newton_cg --capture --steps 4
                       PRINTS "captured: [1-9][0-9]* of [0-9]+ calls were replayed.*equal after each of 4 steps")
overdrive_add_cli_test(compare_double CALL compare digits_mlp --dtype float64 --steps 6 PRINTS "equal after each of 6 steps")

# Somebody else's program.
add_executable(overdrive_cli_test_program app_program.cpp)
target_link_libraries(overdrive_cli_test_program PRIVATE Overdrive::LibTorch overdrive_warnings overdrive_sanitizers)
target_compile_options(overdrive_cli_test_program PRIVATE -O1)
target_precompile_headers(overdrive_cli_test_program REUSE_FROM overdrive_bench)
set(app "$<TARGET_FILE:overdrive_cli_test_program>")
add_executable(overdrive_cli_installing_app installing_app.cpp)
target_link_libraries(overdrive_cli_installing_app PRIVATE overdrive overdrive_warnings overdrive_sanitizers ${CMAKE_DL_LIBS})
target_include_directories(overdrive_cli_installing_app PRIVATE "${PROJECT_SOURCE_DIR}")
target_compile_options(overdrive_cli_installing_app PRIVATE -O1)
set(installing_app "$<TARGET_FILE:overdrive_cli_installing_app>")
foreach(way install scope c)
  overdrive_add_cli_test(app_that_installs_by_${way} CALL compare --app ${installing_app} --runs 1 --json out.json -- ${way}
                         PRINTS "held off.*output: equal" JSON "installs_held_off")
endforeach()
overdrive_add_cli_test(app_that_installs_by_address CALL compare --app ${installing_app} --runs 1 -- by_address STATUS 2
                       PRINTS "cannot be held off, so its run on stock ran 1 backwards on Overdrive")
overdrive_add_cli_test(app_silent CALL compare --app ${app} --runs 1 --quiet -- silent STATUS 2 PRINTS "printed nothing that counts")
overdrive_add_cli_test(app_ignored_altogether CALL compare --app ${app} --runs 1 --quiet --ignore ".*" STATUS 2 PRINTS "printed nothing that counts")
overdrive_add_cli_test(app_equal CALL compare --app ${app} --runs 2 --json out.json PRINTS "5 backwards ran on Overdrive"
                       JSON "overdrive;1;seconds")
overdrive_add_cli_test(app_differs CALL compare --app ${app} --runs 1 -- differs STATUS 1 PRINTS "DIFFERS first in line 6")
overdrive_add_cli_test(app_status CALL compare --app ${app} --runs 1 -- status STATUS 1 PRINTS "stock 0, overdrive 3")
overdrive_add_cli_test(app_ignored CALL compare --app ${app} --runs 1 --ignore "at 0x[0-9a-f]+" -- address
                       PRINTS "output: equal")
overdrive_add_cli_test(app_without_backward CALL compare --app ${app} -- no_backward STATUS 2
                       PRINTS "no backward of it ran on Overdrive")
overdrive_add_cli_test(app_missing CALL compare --app ./no_such_program STATUS 2 PRINTS "cannot start")
overdrive_add_cli_test(app_bad_ignore CALL compare --app ${app} --ignore "(" STATUS 2 PRINTS "not a regular expression")
overdrive_add_cli_test(dashes_without_app CALL compare digits -- more STATUS 2 PRINTS "-- belongs to --app")

find_package(Python3 REQUIRED COMPONENTS Interpreter)
# A program that `fuzz` prints compiles, and says the same of both engines.
if(TARGET overdrive_fuzz)
  set(seed 18)  # whose program has statements of nearly every kind
  set(printed "${CMAKE_CURRENT_BINARY_DIR}/printed_program.cpp")
  add_custom_command(OUTPUT "${printed}" COMMAND overdrive_cli fuzz --print --seed ${seed} > "${printed}"
                     DEPENDS overdrive_cli VERBATIM)
  add_executable(printed_program "${printed}")
  target_link_libraries(printed_program PRIVATE overdrive overdrive_sanitizers)
  target_include_directories(printed_program PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(printed_program PRIVATE -O1)
  target_precompile_headers(printed_program REUSE_FROM overdrive_bench)
  add_test(NAME parity_printed_program COMMAND Python3::Interpreter -B
           "${PROJECT_SOURCE_DIR}/test/parity/printed_program_test.py" "$<TARGET_FILE:printed_program>")
  set_tests_properties(parity_printed_program PROPERTIES TIMEOUT 60 LABELS parity)
endif()

# Longer stories, told in Python.
function(overdrive_add_story name script)
  add_test(NAME cli_${name} COMMAND Python3::Interpreter -B "${CMAKE_CURRENT_SOURCE_DIR}/${script}"
           "$<TARGET_FILE:overdrive_cli>" "${CMAKE_CURRENT_BINARY_DIR}/${name}" ${ARGN})
  set_tests_properties(cli_${name} PROPERTIES TIMEOUT 600 LABELS cli)
endfunction()
overdrive_add_story(page page_test.py)
overdrive_add_story(graph graph_page_test.py)
overdrive_add_story(lanes_page lanes_page_test.py)
overdrive_add_story(cost_pages cost_pages_test.py)
overdrive_add_story(terminal training_test.py terminal)
foreach(story narrow full)
  overdrive_add_story(output_${story} output_test.py ${story})
endforeach()
overdrive_add_story(interrupt training_test.py interrupt)
set(commands_to_stop bench_engine bench_forward_ad soak compare)
if(TARGET overdrive_devices_bench)
  list(APPEND commands_to_stop bench_devices)
endif()
if(TARGET overdrive_fuzz)
  list(APPEND commands_to_stop fuzz)
  set(another_command fuzz --programs 2)
endif()
foreach(command IN LISTS commands_to_stop)
  overdrive_add_story(stop_${command} stopping_test.py ${command})
endforeach()
overdrive_add_story(stop_app stopping_test.py app ${app})
overdrive_add_story(full_disk stopping_test.py full_disk ${another_command})
if(TARGET overdrive_trainers AND OVERDRIVE_HAS_GLOO)
  foreach(story ddp_equal ddp_interrupt ddp_killed)
    overdrive_add_story(${story} training_test.py ${story})
  endforeach()
endif()
foreach(engine stock overdrive)
  overdrive_add_cli_test(train_on_${engine} CALL train digits_mlp --engine ${engine} --steps 20 --save . --json out.json
                         PRINTS "test accuracy" JSON "trainings;0;quality_value")
endforeach()
foreach(packer keep int8 spill)
  overdrive_add_cli_test(train_under_${packer} CALL train transformer --save-tensors ${packer} --steps 2 --json out.json
                         PRINTS "after 2 steps" JSON "trainings;0;quality_value")
endforeach()
overdrive_add_cli_test(train_under_a_trace CALL train digits_mlp --steps 2 --trace out.json JSON "traceEvents;9;dur")
overdrive_add_cli_test(train_offload_on_cpu CALL train digits_mlp --save-tensors offload --steps 2 PRINTS "nothing to do for tensors that are on the CPU")
overdrive_add_cli_test(bench_nodes_quick CALL bench nodes --quick --type MulBackward0 --json out.json JSON "rows;0;of_stock")
overdrive_add_cli_test(bench_nodes_of_no_type CALL bench nodes --type frob STATUS 2 PRINTS "--type: frob not in")
overdrive_add_cli_test(bench_memory_packers CALL bench memory --quick --packers --json out.json JSON "packers;0;saved_bytes")
overdrive_add_cli_test(train_checkpointed CALL train transformer --steps 2 --checkpoint revolve:3 --json out.json
                       PRINTS "revolve:3 .* equal" JSON "trainings;0;memory;4;of_plain")
overdrive_add_cli_test(train_badly_checkpointed CALL train transformer --checkpoint revolve:none STATUS 2
                       PRINTS "is sqrt or revolve:K")
overdrive_add_cli_test(train_not_checkpointable CALL train lstm --checkpoint sqrt STATUS 2 PRINTS "a chain of layers")
overdrive_add_cli_test(bench_memory_quick CALL bench memory --quick --graph scale_chain lstm reentrant --json out.json STATUS 0
                       JSON "rows;0;stock_peak_bytes")
overdrive_add_cli_test(bench_faults CALL bench faults mlp --engine stock --steps 2 PRINTS "keep_memory_bytes.: 0")
overdrive_add_cli_test(bench_faults_of_no_model CALL bench faults frob STATUS 2 PRINTS "no model .frob.")
overdrive_add_cli_test(soak_short CALL soak --minutes 0.1 --threads 2 PRINTS "round 3" TIMEOUT 180)
overdrive_add_cli_test(compare_help CALL compare --help PRINTS "Example: overdrive compare digits")

overdrive_add_cli_test(no_command CALL "" STATUS 2 PRINTS "subcommand is required")
overdrive_add_cli_test(unknown_command CALL frobnicate STATUS 2 PRINTS "no command .frobnicate.")
overdrive_add_cli_test(unknown_option CALL env --frobnicate STATUS 2 PRINTS "--frobnicate")
overdrive_add_cli_test(unknown_bench CALL bench frob STATUS 2 PRINTS "no command .bench frob. .see overdrive bench --help")
overdrive_add_cli_test(steps_that_are_none CALL train digits_mlp --steps many STATUS 2 PRINTS "--steps: .many. is not a number above 0")
overdrive_add_cli_test(negative_seed CALL train digits_mlp --seed -1 STATUS 2 PRINTS "--seed: .-1. is not a number from 0 on")
overdrive_add_cli_test(seed_that_is_too_large CALL train digits_mlp --seed 99999999999999999999 STATUS 2 PRINTS "--seed: .9*. is too large")
overdrive_add_cli_test(steps_that_are_too_many CALL train digits_mlp --steps 99999999999999999999 STATUS 2 PRINTS "--steps: .9*. is too large")
overdrive_add_cli_test(quiet_env CALL env --quiet --json out.json JSON "torch_found")
overdrive_add_cli_test(checkpoint_folder CALL train digits_mlp --save /proc/none STATUS 2 PRINTS "cannot make the folder")
overdrive_add_cli_test(unknown_graph CALL bench engine --graph frob STATUS 2 PRINTS "no graph .frob.")
overdrive_add_cli_test(bad_number CALL bench engine --pairs many STATUS 2 PRINTS "--pairs")
overdrive_add_cli_test(bad_json_path CALL bench engine --quick --json no/such/dir/x.json STATUS 2
                       PRINTS "cannot write .no/such/dir/x.json.")
overdrive_add_cli_test(unknown_trainer CALL compare frob STATUS 2 PRINTS "no trainer .frob.")
overdrive_add_cli_test(no_trainer CALL compare STATUS 2 PRINTS "either a NAME or --all")
overdrive_add_cli_test(no_input CALL compare --torchscript run_and_check STATUS 2 PRINTS "--torchscript")
overdrive_add_cli_test(no_device CALL train digits_mlp --device cuda:7 STATUS 2 PRINTS "no device cuda:7 here")
overdrive_add_cli_test(bad_device CALL train digits_mlp --device frob STATUS 2 PRINTS "cpu, cuda:N or auto")
overdrive_add_cli_test(bad_dtype CALL train digits_mlp --dtype int8 STATUS 2 PRINTS "--dtype")
overdrive_add_cli_test(world_of_one_model CALL train lstm --world 2 STATUS 2 PRINTS "--world is for")
overdrive_add_cli_test(json_to_a_link CALL env --json /dev/stdout STATUS 2 PRINTS "not a file has that name")
overdrive_add_cli_test(bad_html_path CALL compare digits --html no/such/dir/x.html STATUS 2
                       PRINTS "cannot write .no/such/dir/x.html.")
overdrive_add_cli_test(no_steps CALL compare digits --steps 0 STATUS 2 PRINTS "--steps")
overdrive_add_cli_test(no_data CALL compare digits --data . STATUS 2 PRINTS "cannot read the data file .*digits-images")
overdrive_add_cli_test(no_checkpoint CALL train digits_mlp --resume . STATUS 2 PRINTS "there is no checkpoint")
overdrive_add_cli_test(unknown_packer CALL train digits_mlp --save-tensors frob STATUS 2 PRINTS "--save-tensors")
overdrive_add_cli_test(trace_on_stock CALL train digits_mlp --engine stock --trace out.json STATUS 2 PRINTS "--trace is for --engine overdrive")
overdrive_add_cli_test(memory_on_stock CALL train digits_mlp --engine stock --memory out.html STATUS 2 PRINTS "--memory is for --engine overdrive")
overdrive_add_cli_test(two_pages CALL train digits_mlp --memory a.html --profile b.html STATUS 2 PRINTS "--memory and --profile measure the same step")
overdrive_add_cli_test(trace_into_no_folder CALL train digits_mlp --steps 2 --trace /nowhere/out.json STATUS 2
                       PRINTS "/nowhere/out.json.*No such file or directory")
overdrive_add_cli_test(packer_on_stock CALL train digits_mlp --engine stock --save-tensors keep STATUS 2
                       PRINTS "is for --engine overdrive")
overdrive_add_cli_test(unknown_engine CALL train digits_mlp --engine frob STATUS 2 PRINTS "--engine")
