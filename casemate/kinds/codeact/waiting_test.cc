#include "casemate/kinds/codeact/waiting.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace casemate::codeact {
namespace {

bool can_wait(std::string code) {
  CodeactRequest request;
  request.code = std::move(code);
  return can_wait_for_its_file(request);
}

TEST(Waiting, AnOrdinaryProgramCan) {
  EXPECT_TRUE(can_wait(""));
  EXPECT_TRUE(can_wait("print('h\xc3\xa9')\n"));
  EXPECT_TRUE(can_wait("a\nb\n# coding: latin-1\n")) << "the third line says nothing";
  EXPECT_TRUE(can_wait("a\r\nb\r\n# coding: latin-1\r\n"));
  EXPECT_TRUE(can_wait("a\rb\r# coding: latin-1\r"));
}

TEST(Waiting, OneForWhichTheInterpreterWouldGoBackInItsFileCannot) {
  EXPECT_FALSE(can_wait("# -*- coding: latin-1 -*-\n"));
  EXPECT_FALSE(can_wait("#!/usr/bin/python3\n# vim: set fileencoding=latin-1 :\n"));
  EXPECT_FALSE(can_wait("#!/usr/bin/python3\r\n# coding=latin-1\r\n"));
  EXPECT_FALSE(can_wait("\r# coding=latin-1\r"));
  EXPECT_FALSE(can_wait("\xef\xbb\xbfprint(1)"));
  EXPECT_FALSE(can_wait("print('\xe9')"));
  EXPECT_FALSE(can_wait(std::string("PK\x05\x06") + std::string(18, '\0')));
}

TEST(Waiting, OneWithArgumentsOrInputCannot) {
  CodeactRequest request;
  request.arguments = {"word"};
  EXPECT_FALSE(can_wait_for_its_file(request));
  request.arguments = {};
  EXPECT_TRUE(can_wait_for_its_file(request));
  request.stdin_descriptor = 0;
  EXPECT_FALSE(can_wait_for_its_file(request));
}

}  // namespace
}  // namespace casemate::codeact
