# Files carried inside our binaries, byte for byte.

# casemate_embed(<output.cc> <file>... )
#
# Writes a C++ source that defines, for the n-th file, the symbols casemate_embedded_<stem>_n and
# casemate_embedded_<stem>_n_end around its bytes; <stem> is the output's name without extension.
# Whoever compiles it is rebuilt when a file changes.
function(casemate_embed output)
    cmake_path(GET output STEM stem)
    set(text "// Written by the build.\n")
    set(number 0)
    foreach(file IN LISTS ARGN)
        set(symbol "casemate_embedded_${stem}_${number}")
        string(APPEND text
            "__asm__(\".section .rodata\\n.balign 16\\n.global ${symbol}\\n.hidden ${symbol}\\n\"\n"
            "        \"${symbol}:\\n.incbin \\\"${file}\\\"\\n\"\n"
            "        \".global ${symbol}_end\\n.hidden ${symbol}_end\\n${symbol}_end:\\n.byte 0\\n\"\n"
            "        \".previous\\n\");\n")
        math(EXPR number "${number} + 1")
    endforeach()
    file(CONFIGURE OUTPUT "${output}" CONTENT "${text}" @ONLY)
    set_property(SOURCE "${output}" APPEND PROPERTY OBJECT_DEPENDS "${ARGN}")
endfunction()
