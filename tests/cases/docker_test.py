"""The docker backend on the command line where no engine is: what is said of it, and that nobody else
notices."""

import json
import socket
import unittest

from harness import PROGRAM, Case

NOWHERE = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}


class Docker(Case):
    def test_without_an_image_it_is_refused_before_anything_is_asked(self):
        result = self.run_program("print(1)", "--backend", "docker", env=NOWHERE)
        self.assertEqual((result.status, result.text), (125, ""), result)
        self.assertIn("casemate: error: InvalidArgument: --backend docker has no image", result.err)
        self.assertIn("[backends.docker]", result.err)

    def test_images_that_are_no_engines_are_refused(self):
        for image in ("host", f"dir:{self.dir}"):
            result = self.run_program("print(1)", "--backend", "docker", "--image", image, "--check", env=NOWHERE)
            self.assertEqual((result.status, result.text), (125, ""), result)
            self.assertIn("casemate: error: SandboxImageNotSupported: ", result.err)

    def test_an_engine_that_is_not_there_is_named(self):
        result = self.run_program("print(1)", "--backend", "docker", "--image", "python:3-slim", env=NOWHERE)
        self.assertEqual((result.status, result.text), (125, ""), result)
        self.assertIn("casemate: error: SandboxUnavailable: ", result.err)
        self.assertIn("unix:///nowhere/docker.sock", result.err)

    def test_variables_that_are_meant_for_others_disturb_nobody_else(self):
        for variables in ({"DOCKER_HOST": "ssh://somebody@somewhere"},
                          {"DOCKER_HOST": "tcp://127.0.0.1:1", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/nowhere"}):
            with self.subTest(variables=variables):
                result = self.run_program("print(1)", env=variables)
                self.assertEqual((result.status, result.text, result.err), (0, "1\n", ""), result)
                listed = self.run_argv([str(PROGRAM), "backends", "--json"], env=variables)
                records = {one["name"]: one for one in json.loads(listed.text)}
                self.assertFalse(records["docker"]["available"])
                self.assertTrue(records["docker"]["reason"])
                result = self.run_program("print(1)", "--backend", "docker", "--image", "x", env=variables)
                self.assertEqual((result.status, result.text), (125, ""), result)

    def test_tls_that_was_asked_for_is_never_left_out(self):
        """Docker's own client takes the certificates from there when nothing names another place."""
        with socket.create_server(("127.0.0.1", 0)) as engine:
            host = {"DOCKER_HOST": f"tcp://127.0.0.1:{engine.getsockname()[1]}"}
            for variables, place in (({"DOCKER_TLS_VERIFY": "1", "HOME": self.dir}, f"{self.dir}/.docker"),
                                     ({"DOCKER_TLS": "1", "HOME": self.dir}, f"{self.dir}/.docker"),
                                     ({"DOCKER_TLS_VERIFY": "1", "DOCKER_CONFIG": "/nowhere"}, "/nowhere"),
                                     ({"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/there"}, "/there")):
                with self.subTest(variables=variables):
                    result = self.run_program("print(1)", "--backend", "docker", "--image", "x", env={**host, **variables})
                    self.assertEqual((result.status, result.text), (125, ""), result)
                    self.assertIn(f"'{place}/ca.pem' cannot be used", result.err)
            # Nobody came.
            engine.setblocking(False)
            self.assertRaises(BlockingIOError, engine.accept)


if __name__ == "__main__":
    unittest.main()
