# Tests: declared here, run by ctest or by scripts/run_tests. The latter reads
# build/<preset>/tests.manifest, one line a test program, fields parted by tabs:
#
#   gtest|python <name> <label> <program> <reason not to run it in this build, or nothing>
#
# Every test starts in the root of the source tree, with CASEMATE_BUILD_DIR in its environment (where
# the programs are: $CASEMATE_BUILD_DIR/casemate).

if(CASEMATE_BUILD_TESTS)
    enable_testing()
    include(GoogleTest)
endif()

function(casemate_manifest_line kind name label program not_sanitized)
    set(reason "")
    if(CASEMATE_SANITIZE)
        set(reason "${not_sanitized}")
    endif()
    set_property(GLOBAL APPEND_STRING PROPERTY CASEMATE_TEST_MANIFEST
        "${kind}\t${name}\t${label}\t${program}\t${reason}\n")
endfunction()

# casemate_test(<name> FILES <file>... [DEPS <target>...] [RUNS <target>...] [LABEL <label>]
#               [NOT_SANITIZED <reason>])
#
# One GoogleTest program <name>_test, linked with casemate_<name> if there is such a module, with
# gmock and with rapidcheck (include gtest before it). LABEL, for choosing what to run: `unit` unless
# given; `linux` for what needs the kernel's sandboxing. RUNS: programs of ours that the tests start,
# built with them. NOT_SANITIZED: why the program cannot run in
# a sanitizer build; it is listed as skipped there.
function(casemate_test name)
    if(NOT CASEMATE_BUILD_TESTS)
        return()
    endif()
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "LABEL;NOT_SANITIZED" "FILES;DEPS;RUNS")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "casemate_test(${name}): unknown ${arg_UNPARSED_ARGUMENTS}")
    endif()
    if(NOT arg_LABEL)
        set(arg_LABEL unit)
    endif()
    add_executable(${name}_test ${arg_FILES})
    target_link_libraries(${name}_test PRIVATE
        casemate_options casemate_sanitizers ${arg_DEPS}
        GTest::gmock GTest::gtest_main rapidcheck Threads::Threads)
    # The code under test keeps its preset's optimisation; that of the tests themselves is a third of
    # the time that their build takes. A fortified call would need it.
    target_compile_options(${name}_test PRIVATE -O0 -U_FORTIFY_SOURCE)
    if(arg_RUNS)
        add_dependencies(${name}_test ${arg_RUNS})
    endif()
    if(TARGET casemate_${name})
        target_link_libraries(${name}_test PRIVATE casemate_${name})
    endif()
    set_target_properties(${name}_test PROPERTIES
        RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/test_programs")
    gtest_discover_tests(${name}_test
        DISCOVERY_MODE PRE_TEST
        WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
        PROPERTIES LABELS "${arg_LABEL}" ENVIRONMENT "CASEMATE_BUILD_DIR=${CMAKE_BINARY_DIR}")
    casemate_manifest_line(gtest ${name} "${arg_LABEL}" "$<TARGET_FILE:${name}_test>"
        "${arg_NOT_SANITIZED}")
endfunction()

# casemate_python_test(<name> FILE <file.py> [LABEL <label>] [NOT_SANITIZED <reason>])
#
# A unittest file, run by /usr/bin/python3. Each test method counts as a test; skipTest("why") skips.
function(casemate_python_test name)
    if(NOT CASEMATE_BUILD_TESTS)
        return()
    endif()
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "FILE;LABEL;NOT_SANITIZED" "")
    if(NOT arg_LABEL)
        set(arg_LABEL unit)
    endif()
    cmake_path(ABSOLUTE_PATH arg_FILE BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
    add_test(NAME ${name}
        COMMAND /usr/bin/python3 "${arg_FILE}"
        WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties(${name} PROPERTIES
        LABELS "${arg_LABEL}" ENVIRONMENT "CASEMATE_BUILD_DIR=${CMAKE_BINARY_DIR}")
    casemate_manifest_line(python ${name} "${arg_LABEL}" "${arg_FILE}" "${arg_NOT_SANITIZED}")
endfunction()

function(casemate_write_test_manifest)
    get_property(manifest GLOBAL PROPERTY CASEMATE_TEST_MANIFEST)
    file(GENERATE OUTPUT "${CMAKE_BINARY_DIR}/tests.manifest" CONTENT "${manifest}")
endfunction()
