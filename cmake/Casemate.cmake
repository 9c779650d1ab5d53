# How the parts of this project are declared. A module's CMakeLists.txt is a few lines:
#
#   casemate_module(policy
#       SOURCES router.cc purger.cc
#       PUBLIC casemate_core            # seen by our headers
#       PRIVATE fmt::fmt)               # seen by our sources only
#   casemate_test(policy
#       FILES router_test.cc purger_test.cc
#       DEPS casemate_in_process)       # casemate_policy itself is implied
#
# Headers are included from the root of the tree: "casemate/policy/router.h".
# Every kind of target below carries the project's warnings and hardening.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)  # with them `linux` is a macro
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
include(CheckPIESupported)
check_pie_supported(LANGUAGES CXX)

include(CheckCXXCompilerFlag)
check_cxx_compiler_flag(-fcf-protection CASEMATE_HAVE_CF_PROTECTION)  # x86 only

option(CASEMATE_FUZZ "Build libFuzzer's fuzzers (fuzz/); needs clang and the preset `fuzz`" OFF)
set(CASEMATE_SANITIZE "" CACHE STRING "Sanitizers, as for -fsanitize= (see CMakePresets.json)")

# What code that includes our headers needs, in this tree and installed.
add_library(casemate_headers INTERFACE)
target_compile_features(casemate_headers INTERFACE cxx_std_20)
target_include_directories(casemate_headers INTERFACE
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<INSTALL_INTERFACE:include>")

# How our own code is compiled; never forced upon others.
add_library(casemate_options INTERFACE)
target_link_libraries(casemate_options INTERFACE casemate_headers)
target_compile_options(casemate_options INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Werror
    -fstack-protector-strong -fstack-clash-protection
    "$<$<BOOL:${CASEMATE_HAVE_CF_PROTECTION}>:-fcf-protection>")
target_compile_definitions(casemate_options INTERFACE _GLIBCXX_ASSERTIONS)
if(NOT CASEMATE_SANITIZE)
    # Fortified calls need optimisation, and would hide overflows from the sanitizers.
    target_compile_definitions(casemate_options INTERFACE
        "$<$<CONFIG:Release,RelWithDebInfo>:_FORTIFY_SOURCE=2>")
endif()
target_link_options(casemate_options INTERFACE -Wl,-z,relro -Wl,-z,now)

add_library(casemate_sanitizers INTERFACE)
if(CASEMATE_SANITIZE)
    target_compile_options(casemate_sanitizers INTERFACE
        "-fsanitize=${CASEMATE_SANITIZE}" -fno-sanitize-recover=all -fno-omit-frame-pointer
        # What sanitizers add keeps g++ from seeing initialisations, as its manual says of
        # -fsanitize; the plain builds keep the warning.
        "$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>")
    target_link_options(casemate_sanitizers INTERFACE "-fsanitize=${CASEMATE_SANITIZE}")
endif()
if(CASEMATE_SANITIZE STREQUAL "thread")
    add_library(casemate_tsan_clocklock STATIC cmake/tsan_clocklock.cc)
    target_compile_options(casemate_tsan_clocklock PRIVATE -fsanitize=thread)
    target_link_libraries(casemate_sanitizers INTERFACE casemate_tsan_clocklock)
endif()

# Deps of ours, renamed to the variants that carry no sanitizer.
function(casemate_plain_names out)
    set(names "")
    foreach(dep IN LISTS ARGN)
        if(dep MATCHES "^casemate_" AND NOT dep STREQUAL "casemate_fmt")
            string(APPEND dep "_plain")
        endif()
        list(APPEND names "${dep}")
    endforeach()
    set(${out} "${names}" PARENT_SCOPE)
endfunction()

# casemate_module(<name> SOURCES <file>... [PUBLIC <target>...] [PRIVATE <target>...])
#
# The static library casemate_<name>. casemate_<name>_plain is the same without sanitizers, for
# casemate_static_program; in builds without sanitizers it is the same target.
function(casemate_module name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;PUBLIC;PRIVATE")
    if(arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "casemate_module(${name}): unknown ${arg_UNPARSED_ARGUMENTS}")
    endif()
    add_library(casemate_${name} STATIC ${arg_SOURCES})
    target_link_libraries(casemate_${name}
        PUBLIC casemate_headers ${arg_PUBLIC}
        PRIVATE "$<BUILD_INTERFACE:casemate_options>" "$<BUILD_INTERFACE:casemate_sanitizers>"
                ${arg_PRIVATE})
    set_property(GLOBAL APPEND PROPERTY CASEMATE_MODULES casemate_${name})
    if(CASEMATE_SANITIZE)
        add_library(casemate_${name}_plain STATIC EXCLUDE_FROM_ALL ${arg_SOURCES})
        casemate_plain_names(public ${arg_PUBLIC})
        casemate_plain_names(private ${arg_PRIVATE})
        target_link_libraries(casemate_${name}_plain
            PUBLIC casemate_headers ${public} PRIVATE casemate_options ${private})
    else()
        add_library(casemate_${name}_plain ALIAS casemate_${name})
    endif()
endfunction()

# casemate_library(): the target casemate::casemate, every module declared so far.
function(casemate_library)
    get_property(modules GLOBAL PROPERTY CASEMATE_MODULES)
    add_library(casemate_all INTERFACE)
    target_link_libraries(casemate_all INTERFACE ${modules})
    set_target_properties(casemate_all PROPERTIES EXPORT_NAME casemate)
    # What is installed; modules of programs, declared later, are not.
    set_property(GLOBAL PROPERTY CASEMATE_LIBRARY casemate_all ${modules})
    add_library(casemate::casemate ALIAS casemate_all)
endfunction()

# casemate_program(<name> SOURCES <file>... [PRIVATE <target>...])
#
# The executable build/<preset>/<name>, glibc dynamic and everything else static: each shared
# library costs start-up time. The CMake target is <name>_program, because `casemate` alone would
# read as the library.
function(casemate_program name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;PRIVATE")
    add_executable(${name}_program ${arg_SOURCES})
    target_link_libraries(${name}_program
        PRIVATE casemate_options casemate_sanitizers ${arg_PRIVATE})
    if(NOT CASEMATE_SANITIZE)
        target_link_options(${name}_program PRIVATE -static-libstdc++ -static-libgcc)
    endif()
    set_target_properties(${name}_program PROPERTIES
        OUTPUT_NAME "${name}" RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
endfunction()

# casemate_static_program(<name> SOURCES <file>... [PRIVATE <target>...])
#
# The executable build/<preset>/<name>, glibc static too, for places that have no libraries of ours.
# Never sanitized (a sanitizer's runtime cannot be linked statically): keep its code in a module,
# whose tests are.
function(casemate_static_program name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;PRIVATE")
    add_executable(${name} ${arg_SOURCES})
    casemate_plain_names(private ${arg_PRIVATE})
    target_link_libraries(${name} PRIVATE casemate_options ${private})
    # Said by hand: by this property CMake would add -pie or -no-pie, which undo -static-pie.
    set_property(TARGET ${name} PROPERTY POSITION_INDEPENDENT_CODE)
    target_compile_options(${name} PRIVATE -fPIE)
    target_link_options(${name} PRIVATE -static-pie)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
endfunction()

include(CasemateTests)
