#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Compare two recorded sessions of tests/sys/053-tools.sh after a renaming.

Usage: apply_renamed.py OLD NEW [RENAMED.tsv]

Applies doc/RENAMED.tsv to OLD and prints how the result differs from NEW, without
regard to blanks. Exit status 0: they are equal, so only names of the list have
changed. A JSON key without '_' is only renamed in a line that is a JSON path
(".requests.refused number") or a key ("refused:"), other names wherever they are a word.
"""
import difflib
import pathlib
import re
import sys


def rules(rows):
    """(regex, replacement) of each row; texts first, for they hold names."""
    for old, new, kind in sorted(rows, key=lambda r: r[2] != "text"):
        if kind == "text":
            old, new = (x.strip('"').replace('", "', " ") for x in (old, new))
            new = re.sub(r"%\w+", "N", new)
            yield r"(?<![\w.])" + re.sub("%[a-z]+", "N", re.escape(old)) + r"(?!\w)", new
        elif kind == "file":
            yield r"\b" + old.split("-")[0] + r"(?=N)", new.split("-")[0]
        elif kind == "topic":
            yield r"^" + old + r"(?= )", new
        elif "=" not in old and kind not in ("lib", "field"):
            old, new = old.split(".")[-1], new.split(".")[-1]
            if kind == "json" and "_" not in old:
                yield rf"^(\S*\.){old}(?!\w)", r"\1" + new
                yield rf"^{old}(?=:$)", new
            else:
                yield rf"(?<!\w){old}(?!\w)", new


def main():
    """See above."""
    here = pathlib.Path(__file__).resolve().parent
    args = sys.argv[1:]
    if len(args) not in (2, 3):
        sys.exit(__doc__)
    table = pathlib.Path(args[2]) if len(args) == 3 else here / "../../doc/RENAMED.tsv"
    rows = [r.split("\t") for r in table.read_text().splitlines()
            if r and r[0] != "#" and r != "old\tnew\tkind"]
    made = [(re.compile(a), b) for a, b in rules(rows)]
    sides = []
    for name, renamed in zip(args[:2], (True, False)):
        lines = []
        for line in pathlib.Path(name).read_bytes().decode(errors="replace").split("\n"):
            line = re.sub(r"\s+", " ", line)
            for a, b in made if renamed else []:
                line = a.sub(b, line)
            lines.append(line.strip())
        sides.append(lines)
    diff = list(difflib.unified_diff(*sides, "renamed " + args[0], args[1], n=0, lineterm=""))
    print("\n".join(diff) if diff else "equal")
    return bool(diff)


if __name__ == "__main__":
    sys.exit(main())
