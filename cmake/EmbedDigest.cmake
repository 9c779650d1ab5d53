# cmake -DFILE=... -DOUTPUT=... -DSYMBOL=... -P EmbedDigest.cmake
#
# Writes a C++ source that defines SYMBOL, a string: the SHA-256 of FILE in hex.
file(SHA256 "${FILE}" digest)
file(WRITE "${OUTPUT}"
    "// Written by the build.\nextern const char ${SYMBOL}[];\n"
    "const char ${SYMBOL}[] = \"${digest}\";\n")
