# overdrive_shared_cxx_library(RESULT FOLDER): the linker's options by which -lstdc++ is the shared C++ library that LibTorch
# uses, mostly none. A compiler in a folder of its own may bring the archive alone, and a plugin with a C++ library of its own
# beside LibTorch's has two of each lock, locale and stream. FOLDER is where a name for the linker is made then.
function(overdrive_shared_cxx_library result folder)
  set(${result} "" PARENT_SCOPE)
  set(found "")
  foreach(name libstdc++.so libstdc++.so.6)
    execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=${name} OUTPUT_VARIABLE file
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    # A name without a folder means that the compiler found none.
    if(IS_ABSOLUTE "${file}")
      set(found ${name})
      break()
    endif()
  endforeach()
  if(NOT found)
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no shared C++ library (libstdc++.so), which LibTorch uses and Overdrive has to \
share with it. Install the one of this compiler, or name another compiler by -DCMAKE_CXX_COMPILER=...")
  endif()
  if(found STREQUAL "libstdc++.so.6")
    file(MAKE_DIRECTORY "${folder}")
    file(CREATE_LINK "${file}" "${folder}/libstdc++.so" SYMBOLIC)
    set(${result} "-L${folder}" PARENT_SCOPE)
  endif()
endfunction()
