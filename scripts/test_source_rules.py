#!/usr/bin/env python3
"""Tests that source_layers.py and source_sizes.py find what they forbid, and nothing else, in trees made for the purpose."""
import pathlib
import tempfile
import unittest

import source_layers
import source_sizes

REACH = {"low": (), "middle": ("low",), "high": ("low", "middle/narrow.h"), "high/device": ("low", "high/door.h"),
         "middle/strict": ()}


class Tree(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, files):
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


class Layers(Tree):
    def offences(self, files):
        self.write({"low/low.h": "", "middle/narrow.h": '#include "low/low.h"\n', "middle/wide.h": "", **files})
        return source_layers.check(self.root, REACH)

    def test_what_is_allowed_passes(self):
        self.assertEqual(self.offences({"middle/a.c": '#include "middle/wide.h"\n#include <stdio.h>\n#include "low/low.h"\n',
                                        "high/b.c": '#include "tensorgrad/tensorgrad.h"\n#include "middle/narrow.h"\n'}), [])

    def test_a_direct_include_is_found(self):
        self.assertEqual(self.offences({"low/a.c": '/* a */\n#include "middle/wide.h"\n'}),
                         ["low/a.c:2: low must not reach middle/wide.h: low/a.c > middle/wide.h"])

    def test_angle_brackets_hide_nothing(self):
        self.assertEqual(self.offences({"low/a.c": '#include <sys/stat.h>\n#include <middle/wide.h>\n'}),
                         ["low/a.c:2: low must not reach middle/wide.h: low/a.c > middle/wide.h"])

    def test_a_chain_is_found_and_printed(self):
        offences = self.offences({"high/a.c": '\n\n#include "high/own.h"\n', "high/own.h": '#include "middle/narrow.h"\n',
                                  "middle/narrow.h": '#include "middle/wide.h"\n'})
        self.assertIn("high/a.c:3: high must not reach middle/wide.h: "
                      "high/a.c > high/own.h > middle/narrow.h > middle/wide.h", offences)
        self.assertEqual(len(offences), 2)  # and high/own.h itself

    def test_a_folder_below_has_its_own_rule(self):
        offences = self.offences({"high/door.h": '#include "middle/narrow.h"\n', "high/device/a.c": '#include "high/door.h"\n'})
        self.assertEqual(offences, ["high/device/a.c:1: high/device must not reach middle/narrow.h: "
                                    "high/device/a.c > high/door.h > middle/narrow.h"])

    def test_a_header_not_listed_by_name_is_found(self):
        self.assertEqual(self.offences({"high/device/a.c": '#include "high/other.h"\n', "high/other.h": ""}),
                         ["high/device/a.c:1: high/device must not reach high/other.h: high/device/a.c > high/other.h"])

    def test_a_file_may_have_a_rule_of_its_own(self):
        self.assertEqual(self.offences({"middle/strict.c": '#include "low/low.h"\n', "middle/strict_not.c": '#include "low/low.h"\n'}),
                         ["middle/strict.c:1: middle/strict must not reach low/low.h: middle/strict.c > low/low.h"])

    def test_comments_include_nothing(self):
        self.assertEqual(self.offences({"low/a.c": '/*\n#include "middle/wide.h"\n*/\n'}), [])

    def test_headers_that_include_each_other_end(self):
        self.assertEqual(self.offences({"low/a.h": '#include "low/b.h"\n', "low/b.h": '#include "low/a.h"\n'}), [])

    def test_folders_and_paths_must_be_known(self):
        self.assertEqual(self.offences({"new/a.c": "", "low/a.c": '#include "low.h"\n'}),
                         ['low/a.c:1: include "low.h" by its path from src/',
                          "new/a.c:1: its folder is not in the table of scripts/source_layers.py"])


class Sizes(Tree):
    def offences(self, files, long_files=(), long_functions=()):
        self.write(files)
        return source_sizes.check(self.root, ("src", "web/src"), long_files, long_functions)

    @staticmethod
    def body(lines):
        return '    call("}"); /* { */\n' * (lines - 2)

    def test_what_is_short_passes(self):
        self.assertEqual(self.offences({"src/a.c": "int f(int x) {\n" + self.body(60) + "}\n" + "int y;\n" * 640}), [])

    def test_long_files_are_found(self):
        self.assertEqual(self.offences({"src/a.c": "int y;\n" * 701}), ["src/a.c: 701 lines; split what is over 700"])

    def test_long_functions_are_found(self):
        text = "static int f(int x,\n             int y) {\n" + self.body(60) + "}\n"
        self.assertEqual(self.offences({"src/a.c": "int z;\n" + text}), ["src/a.c:2: f has 61 lines; split what is over 60"])

    def test_tables_and_classes_are_no_functions(self):
        self.assertEqual(self.offences({"src/a.c": "static const int x[] = {\n" + "    1,\n" * 70 + "};\n",
                                        "src/b.h": "typedef struct b {\n" + "    int x;\n" * 70 + "} b;\n",
                                        "web/src/c.ts": "export class C extends D {\n" + "  x = 1\n" * 70 + "}\n"}), [])

    def test_functions_of_typescript_are_found(self):
        rows = "  call(`}`, /[{]/)\n" * 60
        text = {"f": "export function f(x: { y: number }): void {\n", "g": "const g = (x: number): number => {\n",
                "h": "class C {\n  async h(x: number): Promise<void> {\n"}
        for name, head in text.items():
            end = "}\n}\n" if name == "h" else "}\n"
            self.assertEqual(self.offences({"web/src/a.ts": head + rows + end}),
                             [f"web/src/a.ts:{2 if name == 'h' else 1}: {name} has 62 lines; split what is over 60"])

    def test_exceptions_hold_while_they_are_needed(self):
        files = {"src/a.c": "int f(void) {\n" + self.body(61) + "}\n" + "int y;\n" * 700}
        self.assertEqual(self.offences(files, ("src/a.c",), ("src/a.c f",)), [])
        self.assertEqual(self.offences({"src/a.c": "int f(void) { return 1; }\n"}, ("src/a.c",), ("src/a.c f",)),
                         ["scripts/source_sizes.py: src/a.c is short now: take it out of the list",
                          "scripts/source_sizes.py: src/a.c f is short now: take it out of the list"])

    def test_braces_that_do_not_match_are_told(self):
        self.assertEqual(self.offences({"src/a.c": "int f(void) {\n"}),
                         ["src/a.c: its braces do not match, so that functions cannot be told"])


if __name__ == "__main__":
    unittest.main()
