#!/usr/bin/env python3
# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Check tables of manual pages: every row has the columns of its list, and as mandoc
and groff render it, its first two cells are in one line, the second below that of
the heading. Usage: check_man.py PAGE..."""
import re
import shutil
import subprocess
import sys

MACRO = re.compile(r"^(Sy|Em|Nm|Fl|Ar|Cm|Pa|Ic|Va|Dv|Er|Li|Ev|Fn|Xr|No|Ns|Ta|Tn|Vt|Op|Dq|Ql|Sq)$")


def words(line):
    """Words of a macro line; a quoted one keeps its blanks."""
    return [a or b for a, b in re.findall(r'"([^"]*)"|(\S+)', line)]


def plain(cell):
    text = " ".join(w for w in cell if not MACRO.match(w))
    return text.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\").strip()


def tables(path):
    """[(line, columns, rows of cells)] of a page."""
    found, cur = [], None
    for n, line in enumerate(open(path, encoding="utf-8"), 1):
        line = line.rstrip("\n")
        if line.startswith(".Bl") and "-column" in line:
            w = words(line)
            cur = (n, w[w.index("-column") + 1:], [])
            cur = (n, [x for x in cur[1] if not x.startswith("-") and x != "compact"], [])
        elif line.startswith(".El") and cur:
            found.append(cur)
            cur = None
        elif cur and line.startswith(".It"):
            cells, cell = [], []
            for w in words(line)[1:]:
                if w == "Ta":
                    cells.append(cell)
                    cell = []
                else:
                    cell.append(w)
            cells.append(cell)
            cur[2].append((n, [plain(c) for c in cells]))
        elif cur and line.startswith(".Ta") and cur[2]:
            cur[2][-1][1].append(plain(words(line)[1:]))
    return found


def renderings(path):
    if shutil.which("mandoc"):
        yield "mandoc", ["mandoc", "-T", "ascii", "-O", "width=100", path]
    if shutil.which("groff"):
        yield "groff", ["groff", "-mandoc", "-Tascii", "-P-cbou", "-rLL=100n", path]


def rendered(path, who, cmd, found):
    """Yield the errors in the tables of a page as one program shows it."""
    text = subprocess.run(cmd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          check=True).stdout.decode("utf-8", "replace")
    lines = [re.sub(r".\x08", "", x).expandtabs() for x in text.split("\n")]
    at = 0
    for first, _, rows in found:
        column = None
        for n, cells in rows:
            if len(cells) < 2 or not cells[0] or not cells[1]:
                continue
            head = cells[1].split()[0]
            pat = re.compile(r"^ +" + r"\s+".join(map(re.escape, cells[0].split())) +
                             r"(?P<gap> +)" + re.escape(head))
            hit = next((i for i in range(at, len(lines)) if pat.match(lines[i])), None)
            if hit is None:
                yield f"{path}:{n}: {who}: {cells[0]!r} and {cells[1]!r} are not in one line"
                continue
            at = hit
            col = pat.match(lines[hit]).end("gap")
            if column is not None and col != column:
                yield f"{path}:{n}: {who}: {cells[1]!r} is not below the column's head"
            column = column if column is not None else col


def main():
    bad = []
    for path in sys.argv[1:]:
        found = tables(path)
        for first, columns, rows in found:
            for n, cells in rows:
                if len(cells) != len(rows[0][1]):
                    bad.append(f"{path}:{n}: {len(cells)} cells, the head has {len(rows[0][1])}")
                for c, w in zip(cells[:-1], columns):
                    if len(c) > len(w):
                        bad.append(f"{path}:{n}: {c!r} is wider than its column "
                                   f"{w!r} of line {first}")
        for who, cmd in renderings(path):
            bad += rendered(path, who, cmd, found)
    print("\n".join(bad), end="\n" if bad else "")
    return 1 if bad else 0


sys.exit(main())
