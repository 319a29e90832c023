dnl SPDX-FileCopyrightText: The fdd authors
dnl SPDX-License-Identifier: Apache-2.0
dnl FDD_CUDA: --with-cuda=auto|no|DIR, --with-nvcc-gencode=FLAGS.
dnl Sets NVCC, CUDA_LIBS and the conditional HAVE_CUDA. Fails only when CUDA
dnl was asked for by name. cudart is linked statically.
AC_DEFUN([FDD_CUDA], [
AC_ARG_WITH([cuda], [AS_HELP_STRING([--with-cuda=auto|no|DIR],
    [the CUDA backend; DIR holds bin/nvcc (default: auto)])], [], [with_cuda=auto])
AC_ARG_WITH([nvcc-gencode], [AS_HELP_STRING([--with-nvcc-gencode=FLAGS],
    [target architectures (default: sm_90a)])], [],
    [with_nvcc_gencode="-gencode=arch=compute_90a,code=sm_90a"])
AC_ARG_VAR([NVCC], [CUDA compiler])
AC_ARG_VAR([NVCCFLAGS], [flags for nvcc])
fdd_cuda=no
fdd_cuda_summary="no (--with-cuda=no)"
AS_IF([test "x$with_cuda" != xno], [
    AS_CASE([$with_cuda],
        [auto|yes], [AC_PATH_PROG([NVCC], [nvcc], [],
            [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])],
        [NVCC=$with_cuda/bin/nvcc])
    fdd_cuda_summary="no (nvcc not found)"
    AS_CASE([$with_cuda], [auto|yes], [],
        [fdd_cuda_summary="no ($with_cuda/bin/nvcc is not there or not executable)"])
    AS_IF([test -n "$NVCC" && test -x "$NVCC"], [
        cuda_dir=$(cd "$(dirname "$(readlink -f "$NVCC")")/.." && pwd)
        for d in "$cuda_dir/lib64" "$cuda_dir/targets/x86_64-linux/lib" "$cuda_dir/lib"; do
            AS_IF([test -f "$d/libcudart_static.a"], [cuda_lib=$d; break])
        done
        CUDA_LIBS="-L$cuda_lib -lcudart_static -ldl -lrt -lpthread"
        AC_MSG_CHECKING([whether $NVCC compiles and links with $CC])
        cat > conftest_cu.cu <<_CU
#include <cublasLt.h>
#include <cuda_runtime.h>
static __global__ void k(int *p) { *p = 1; }
extern "C" int fdd_conftest(int *p) { k<<<1, 1>>>(p); return (int)cudaPeekAtLastError(); }
_CU
        cat > conftest_c.c <<_C
int fdd_conftest(int *p);
int main(void) { return fdd_conftest((int *)0) == -1; }
_C
        AS_IF([$NVCC $with_nvcc_gencode -std=c++17 -Xcompiler -fPIC,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics \
                -c conftest_cu.cu -o conftest_cu.o >&AS_MESSAGE_LOG_FD 2>&1 &&
            $CC $CFLAGS conftest_c.c conftest_cu.o $CUDA_LIBS -o conftest_cu >&AS_MESSAGE_LOG_FD 2>&1],
            [fdd_cuda=yes; AC_MSG_RESULT([yes])
             fdd_cuda_summary="$NVCC $with_nvcc_gencode"],
            [AC_MSG_RESULT([no]); fdd_cuda_summary="no ($NVCC cannot build, see config.log)"])
        rm -f conftest_cu*  conftest_c.c])
    AS_IF([test $fdd_cuda = no && test "x$with_cuda" != xauto],
        [AC_MSG_ERROR([--with-cuda=$with_cuda was given, but: $fdd_cuda_summary])])])
AS_IF([test $fdd_cuda = yes], [AC_DEFINE([FDD_HAVE_CUDA], [1], [built with the CUDA backend])],
    [CUDA_LIBS=])
NVCC_GENCODE=$with_nvcc_gencode
AC_SUBST([fdd_cuda]) dnl for .ci/run
AC_SUBST([NVCC_GENCODE])
AC_SUBST([CUDA_LIBS])
AM_CONDITIONAL([HAVE_CUDA], [test $fdd_cuda = yes])
])
