# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""fdclient.py against the C header: every structure's size and every field's offset and
size, every constant, every function's number of arguments. A C program prints what the
compiler makes of the header. Usage: layout.py FOLDER-OF-HEADERS; exit 1 and a line for
each difference."""
import ctypes
import os
import re
import subprocess
import sys
import tempfile

import fdclient

folder = sys.argv[1]
# Names of the module that differ from C; functions of C that it has no use for.
NAMES = {"_UNSET": "FDC_UNSET", "_UNSET64": "FDC_UNSET64", "_LITERAL": "FDC_LITERAL"}
NOT_USED = {"fdc_read_text", "fdc_req_tokens", "fdc_req_user", "fdc_req_set_user"}

header = "".join(open(os.path.join(folder, f), encoding="utf-8").read()
                 for f in sorted(os.listdir(folder)) if re.fullmatch(r"fdclient.*\.h", f))
constants = {c: getattr(fdclient, py) for py, c in NAMES.items()}
for name, value in vars(fdclient).items():
    if re.match(r"_(F|S|T|E|HAS)_[A-Z_]+$", name):
        constants["FDC" + name] = value

lines = ["#include <stddef.h>", "#include <stdio.h>", '#include "fdclient.h"',
         "int main(void) {"]
want = []


def wanted(name, expression, value):
    lines.append(f'printf("%lld\\n", (long long)({expression}));')
    want.append((name, value))


wanted("fdclient._VERSION", "FDC_VERSION", fdclient._VERSION)
wanted("fdclient._UNSET_F", "FDC_UNSET_F == -3.4028234663852886e38f",
       fdclient._UNSET_F == -3.4028234663852886e38)
for name, value in constants.items():
    wanted(name, name, value if value < 2**63 else value - 2**64)
for c, struct in fdclient._STRUCTS.items():
    wanted(f"sizeof({c})", f"sizeof(struct {c})", ctypes.sizeof(struct))
    for field, *_ in struct._fields_:
        at = getattr(struct, field)
        wanted(f"offset of {c}.{field}", f"offsetof(struct {c}, {field})", at.offset)
        wanted(f"size of {c}.{field}", f"sizeof(((struct {c} *)0)->{field})", at.size)
lines.append("return 0; }")

bad = []
with tempfile.TemporaryDirectory() as tmp:
    source, program = os.path.join(tmp, "layout.c"), os.path.join(tmp, "layout")
    with open(source, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    subprocess.run([*os.environ.get("CC", "cc").split(), "-std=c11", "-I", folder, "-o",
                    program, source], check=True)
    got = subprocess.run([program], check=True, stdout=subprocess.PIPE).stdout.split()
for (name, value), c in zip(want, map(int, got)):
    if value != c:
        bad.append(f"{name}: {value} in fdclient.py, {c} in C")

# What the header has and the module lacks. Of statuses only those that it treats apart.
for name in sorted(set(re.findall(r"\bFDC_(?:F|S|T|HAS)_[A-Z_]+\b", header))):
    if name not in constants and "FDC_SET_" not in name:
        bad.append(f"{name} is in the header and not in fdclient.py")
for name in sorted(set(re.findall(r"^struct (fdc_\w+) \{", header, re.M))):
    if name not in fdclient._STRUCTS:
        bad.append(f"struct {name} is in the header and not in fdclient.py")
code = re.sub(r"/\*.*?\*/|^#[^\n]*", "", header, flags=re.S | re.M)
functions = dict(re.findall(r"\b(fdc_\w+)\(([^()]*)\);", code))
for name, arguments in functions.items():
    n = 0 if arguments.strip() == "void" else arguments.count(",") + 1
    if name not in fdclient._FUNCTIONS:
        if name not in NOT_USED:
            bad.append(f"{name}() is in the header and not in fdclient.py")
    elif len(fdclient._FUNCTIONS[name][1]) != n:
        bad.append(f"{name}() has {n} arguments, not {len(fdclient._FUNCTIONS[name][1])}")
for name in fdclient._FUNCTIONS:
    if name not in functions:
        bad.append(f"{name}() is in fdclient.py and not in the header")

# Which values of errors are floats is told by a table of the protocol.
with open(os.path.join(folder, "tbl/details.h"), encoding="utf-8") as f:
    floats = set(re.findall(r'^FDP_DETAIL\(\w+, F, "(.*)"\)', f.read(), re.M))
if floats != fdclient._FLOAT_DETAILS:
    bad.append(f"floats in tbl/details.h: {sorted(floats)}")

# Every field that a program sets has a parameter.
counts = set(fdclient._IDS.values()) | {"n_stop", "n_bias", "n_bad_words", "n_bad_ids",
    "n_spans", "grammar_len", "stop_len", "bad_ids_len", "size", "flags", "rsv",
    "submit_timeout_ms", "exclusive_reader", "user_ptr", "error_text", "error_text_bytes"}
for struct in (fdclient._Params, fdclient._SubmitOpts):
    for field, *_ in struct._fields_:
        if field not in counts and field not in fdclient.Params.__annotations__:
            bad.append(f"there is no parameter for {field}")

if len(want) < 150 or len(functions) < 30:
    bad.append(f"only {len(want)} values and {len(functions)} functions were found")
print("\n".join(bad), end="\n" if bad else "")
sys.exit(1 if bad else 0)
