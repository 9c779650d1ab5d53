# Libraries this project is built with (scripts/packages/).

include(ThirdParty)

# Debian ships fmt as headers and a shared library only; this archive is the compiled part.
add_library(casemate_fmt STATIC "${CMAKE_CURRENT_LIST_DIR}/fmt.cc")
target_compile_features(casemate_fmt PUBLIC cxx_std_20)
set_target_properties(casemate_fmt PROPERTIES POSITION_INDEPENDENT_CODE ON)
add_library(fmt::fmt ALIAS casemate_fmt)

# Headers only; the compiled form would be one more shared library to load at every start.
find_path(CASEMATE_TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)
mark_as_advanced(CASEMATE_TOMLPLUSPLUS_INCLUDE)

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
