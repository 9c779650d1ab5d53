# The roles of the guest program that need the kernel's namespaces, the program itself, and its
# bytes for the host.
include(Embed)

# -- The programs' system call filter, compiled now -------------------------------------------------
add_executable(casemate_seccomp_generator seccomp/generate.cc)
target_link_libraries(casemate_seccomp_generator PRIVATE casemate_options seccomp::seccomp)
set(seccomp_program "${CMAKE_CURRENT_BINARY_DIR}/seccomp_program.cc")
add_custom_command(
    OUTPUT "${seccomp_program}"
    COMMAND casemate_seccomp_generator > "${seccomp_program}"
    DEPENDS casemate_seccomp_generator VERBATIM)

# -- What sandboxes find in /casemate ---------------------------------------------------------------
# A program of ours in each of them: without the C library, and so as small as it can be (10 KB).
add_executable(casemate-call call_tool/main.cc call_tool/start.cc)
target_link_libraries(casemate-call PRIVATE casemate_headers)
set_property(TARGET casemate-call PROPERTY POSITION_INDEPENDENT_CODE)
target_compile_options(casemate-call PRIVATE
    -Wall -Wextra -Wshadow -Wconversion -Werror -Os -g0 -ffreestanding -fno-exceptions -fno-rtti
    -fno-pie -fno-stack-protector -fno-tree-loop-distribute-patterns -fno-asynchronous-unwind-tables)
target_link_options(casemate-call PRIVATE
    -nostdlib -static -no-pie -s -Wl,--gc-sections -Wl,--build-id=none -Wl,-z,noexecstack)
set_target_properties(casemate-call PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")

file(GLOB support_paths CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/../support/*.py")
set(support_names "")
foreach(path IN LISTS support_paths)
    cmake_path(GET path FILENAME name)
    list(APPEND support_names "python/${name}")
endforeach()
# Compiled too: every program's start imports one, and compiling it there takes 0.6 ms. For the
# Python of this machine; the name says which, another version passes it over. Never checked
# against the source beside it, which is of the same build.
find_program(CASEMATE_PYTHON3 python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(CASEMATE_PYTHON3)
    execute_process(
        COMMAND "${CASEMATE_PYTHON3}" -c "import sys; print(sys.implementation.cache_tag, end='')"
        OUTPUT_VARIABLE cache_tag COMMAND_ERROR_IS_FATAL ANY)
    foreach(path IN LISTS support_paths)
        cmake_path(GET path STEM stem)
        set(compiled "${CMAKE_CURRENT_BINARY_DIR}/${stem}.${cache_tag}.pyc")
        add_custom_command(
            OUTPUT "${compiled}"
            COMMAND "${CASEMATE_PYTHON3}" "${CMAKE_CURRENT_SOURCE_DIR}/compile_support.py"
                    "${path}" "${compiled}"
            DEPENDS "${path}" compile_support.py VERBATIM)
        list(APPEND compiled_paths "${compiled}")
        list(APPEND compiled_names "python/__pycache__/${stem}.${cache_tag}.pyc")
    endforeach()
    list(APPEND support_paths ${compiled_paths})
    list(APPEND support_names ${compiled_names})
endif()
list(APPEND support_paths "${CMAKE_BINARY_DIR}/casemate-call")
list(APPEND support_names "bin/casemate-call")
casemate_embed("${CMAKE_CURRENT_BINARY_DIR}/support_bytes.cc" ${support_paths})
set(SUPPORT_DECLARATIONS "")
set(SUPPORT_ENTRIES "")
set(number 0)
foreach(name IN LISTS support_names)
    set(symbol "casemate_embedded_support_bytes_${number}")
    string(APPEND SUPPORT_DECLARATIONS
        "extern \"C\" const char ${symbol}[];\nextern \"C\" const char ${symbol}_end[];\n")
    if(name MATCHES "^bin/")
        set(mode 0555)
    else()
        set(mode 0444)
    endif()
    string(APPEND SUPPORT_ENTRIES
        "      {\"${name}\", ${mode}, {${symbol}, static_cast<std::size_t>(${symbol}_end - ${symbol})}},\n")
    math(EXPR number "${number} + 1")
endforeach()
configure_file(support_files.cc.in support_files.cc @ONLY)

# For the guest program, and for hosts that bring them to a sandbox themselves.
casemate_module(guest_support
    SOURCES "${CMAKE_CURRENT_BINARY_DIR}/support_bytes.cc"
            "${CMAKE_CURRENT_BINARY_DIR}/support_files.cc")

casemate_module(guest_linux
    SOURCES account_calls.cc account_files.cc account_place.cc agent.cc call_network.cc clone_starter.cc container_agent.cc
            container_config.cc container_stream.cc enclosed_agent.cc enclosed_mounts.cc enclosure.cc enclosure_config.cc
            enclosure_starter.cc identity.cc image_root.cc inode_reserve.cc inheritance.cc keeper.cc keeper_request.cc
            keeper_words.cc kept_directory.cc landlock.cc leases.cc linux_place.cc patient_listener.cc refusals.cc rootfs.cc runtime_starter.cc
            seccomp.cc seclusion.cc strays.cc "${seccomp_program}"
    PUBLIC casemate_guest_agent casemate_guest_support casemate_sys)

casemate_test(guest_linux FILES container_config_test.cc enclosed_mounts_test.cc enclosure_config_test.cc identity_test.cc leases_test.cc DEPS Boost::json)

# Virtual machines: what keeps one on the host, and its first process inside.
casemate_module(guest_machine
    SOURCES ../machine/control_line.cc ../machine/hypervisor.cc ../machine/machine_agent.cc
            ../machine/machine_boot.cc ../machine/machine_init.cc ../machine/machine_starter.cc
            ../machine/running_machine.cc ../machine/time_stamp.cc
    PUBLIC casemate_guest_linux casemate_guest_machine_plan casemate_guest_stream casemate_sys)
casemate_test(guest_machine FILES ../machine/control_line_test.cc ../machine/machine_agent_test.cc ../machine/running_machine_test.cc ../machine/time_stamp_test.cc)

casemate_static_program(casemate-guest
    SOURCES main.cc
    PRIVATE casemate_guest_machine)
target_link_options(casemate-guest PRIVATE -s -Wl,--gc-sections)

# -- Its bytes, for the host ------------------------------------------------------------------------
set(program_bytes "${CMAKE_CURRENT_BINARY_DIR}/guest_program_bytes.cc")
casemate_embed("${program_bytes}" "${CMAKE_BINARY_DIR}/casemate-guest")
set(program_digest "${CMAKE_CURRENT_BINARY_DIR}/guest_program_digest.cc")
add_custom_command(
    OUTPUT "${program_digest}"
    COMMAND "${CMAKE_COMMAND}" "-DFILE=${CMAKE_BINARY_DIR}/casemate-guest"
            "-DOUTPUT=${program_digest}" -DSYMBOL=casemate_guest_program_digest
            -P "${PROJECT_SOURCE_DIR}/cmake/EmbedDigest.cmake"
    DEPENDS "${CMAKE_BINARY_DIR}/casemate-guest" "${PROJECT_SOURCE_DIR}/cmake/EmbedDigest.cmake"
    VERBATIM)
casemate_module(guest_program
    SOURCES guest_program.cc "${program_bytes}" "${program_digest}"
    PUBLIC casemate_base casemate_sys)
