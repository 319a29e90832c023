# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# if cuBLASLt is in no library path, python's packages may have it
if [ -z "${FDD_CUBLASLT:-}" ] && ! ldconfig -p | grep -q 'libcublasLt\.so\.1[23]'; then
    lib=$(python3 -c 'import glob, site
for d in site.getsitepackages():
    print(*glob.glob(d + "/nvidia/*/lib/libcublasLt.so.1[23]"), sep="\n")' 2>/dev/null | head -n 1)
    [ -n "$lib" ] && export FDD_CUBLASLT=$lib
fi
