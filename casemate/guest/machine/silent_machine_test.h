#pragma once

// What stands in for a hypervisor: a program whose guest is ready as soon as it is asked, and then
// says nothing more.

#include <string>
#include <string_view>

#include "casemate/guest/machine/machine_messages.h"
#include "casemate/guest/machine/machine_plan.h"
#include "casemate/guest/stream/multiplexer.h"

namespace casemate::guest {

// In one line, as a plan holds it.
inline std::string python_of(std::string_view program) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char each : program) {
    const auto byte = static_cast<unsigned char>(each);
    hex += {kDigits[byte >> 4U], kDigits[byte & 15U]};
  }
  return "exec(bytes.fromhex('" + hex + "').decode())";
}

inline MachinePlan silent_machine() {
  constexpr char kProgram[] = R"py(
import os, socket, struct, sys, time
magic, left, version = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
line = socket.socket(fileno=4)
line.sendall(b'{"QMP": {}}\n')
line.recv(65536)
line.sendall(b'{"return": {}}\n')
os.write(3, struct.pack("<Qi244s", magic, 0, b""))
while left: left -= len(os.read(3, left))
os.write(3, struct.pack("<Qi508s", magic, 0, b""))
os.write(3, struct.pack("<IHBB8sII", 0, 16, 1, 0, b"casemate", version, 16))
time.sleep(1000)
)py";
  return {.program = "/usr/bin/python3",
          .arguments = {"-c", python_of(kProgram), std::to_string(kMachineMagic),
                        std::to_string(sizeof(MachineStart)), std::to_string(kStreamVersion)}};
}

}  // namespace casemate::guest
