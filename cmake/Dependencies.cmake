# Third-party libraries, all Debian 12 packages (scripts/packages/). Archives are linked statically,
# glibc dynamically: the program starts in a quarter of the time of one that loads them all.

find_package(Threads REQUIRED)

# 1.81 by name: Debian's unversioned Boost is 1.74, and the two cannot be installed together.
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.81 EXACT REQUIRED COMPONENTS json)

# Debian ships fmt as headers and a shared library only; this archive is the compiled part.
add_library(casemate_fmt STATIC "${CMAKE_CURRENT_LIST_DIR}/fmt.cc")
target_compile_features(casemate_fmt PUBLIC cxx_std_20)
set_target_properties(casemate_fmt PROPERTIES POSITION_INDEPENDENT_CODE ON)
add_library(fmt::fmt ALIAS casemate_fmt)

# Imports NAME::NAME from its static archive. The headers are in the compiler's default path.
function(casemate_import_archive name)
    find_library(CASEMATE_${name}_ARCHIVE "lib${name}.a" REQUIRED)
    mark_as_advanced(CASEMATE_${name}_ARCHIVE)
    add_library(${name}::${name} STATIC IMPORTED GLOBAL)
    set_target_properties(${name}::${name} PROPERTIES
        IMPORTED_LOCATION "${CASEMATE_${name}_ARCHIVE}")
endfunction()

casemate_import_archive(crypto)
casemate_import_archive(seccomp)
casemate_import_archive(utf8proc)
set_target_properties(utf8proc::utf8proc PROPERTIES INTERFACE_COMPILE_DEFINITIONS UTF8PROC_STATIC)

find_package(CLI11 REQUIRED)

# AUTO: tests are built where GoogleTest is installed, so that `make run` needs the short package
# list only. `make test` says ON and fails without it.
set(CASEMATE_TESTS AUTO CACHE STRING "Build the tests: ON, OFF, or AUTO (where GoogleTest is)")
set_property(CACHE CASEMATE_TESTS PROPERTY STRINGS AUTO ON OFF)
set(CASEMATE_BUILD_TESTS OFF)
if(CASEMATE_TESTS STREQUAL "AUTO")
    find_package(GTest QUIET)
    find_package(rapidcheck QUIET)
    if(GTest_FOUND AND rapidcheck_FOUND)
        set(CASEMATE_BUILD_TESTS ON)
    else()
        message(STATUS "GoogleTest or rapidcheck is not installed: tests are not built")
    endif()
elseif(CASEMATE_TESTS)
    find_package(GTest REQUIRED)
    find_package(rapidcheck REQUIRED)
    set(CASEMATE_BUILD_TESTS ON)
endif()
