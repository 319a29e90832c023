# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Inner loops are built once per instruction set; kernels/cpu/isa_pick.c picks
# at run time. -ffp-contract=off everywhere: a multiply-add is fused where the
# source says so and nowhere else, or call sites would differ in their bits.
FDK_ISA_SOURCES = %D%/cpu/isa.h %D%/cpu/isa_ops.h %D%/cpu/kv8.h %D%/cpu/vec.h %D%/cpu/vec_quant.h \
	%D%/cpu/isa_gemm.c %D%/cpu/isa_attention.c %D%/cpu/isa_rows.c

noinst_LIBRARIES += libfdkernels.a libfdk_generic.a
libfdkernels_a_SOURCES = %D%/fdk.h %D%/collective.h %D%/collective_channel.h %D%/collective_plan.h %D%/cuda/hooks.h %D%/program.h %D%/rules.h %D%/common.c %D%/null.c \
	%D%/program.c \
	%D%/cpu/cpu.h %D%/cpu/vdev.h %D%/cpu/sample.h \
	%D%/cpu/collective.c %D%/cpu/device.c %D%/cpu/exec.c %D%/cpu/isa_pick.c %D%/cpu/launch.c %D%/cpu/pack.c %D%/cpu/columns.c \
	%D%/cpu/pool.c %D%/cpu/probe.c %D%/cpu/sample.c %D%/cpu/stream.c
libfdkernels_a_CFLAGS = $(AM_CFLAGS) -ffp-contract=off
libfdk_generic_a_SOURCES = $(FDK_ISA_SOURCES)
libfdk_generic_a_CFLAGS = $(AM_CFLAGS) -ffp-contract=off -DCPU_ISA=0
HOST_KERNEL_LIBS += libfdkernels.a libfdk_generic.a

if CPU_X86_64
noinst_LIBRARIES += libfdk_avx2.a libfdk_avx512.a
libfdk_avx2_a_SOURCES = $(FDK_ISA_SOURCES)
libfdk_avx2_a_CFLAGS = $(AM_CFLAGS) -ffp-contract=off -DCPU_ISA=1 -mavx2 -mfma -mf16c
libfdk_avx512_a_SOURCES = $(FDK_ISA_SOURCES)
libfdk_avx512_a_CFLAGS = $(AM_CFLAGS) -ffp-contract=off -DCPU_ISA=2 \
	-mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c $(FDK_NO_SAN)
HOST_KERNEL_LIBS += libfdk_avx2.a libfdk_avx512.a
if TSAN
# GEMMs take two thirds of the time of a test that computes. The order of
# operations, which is what TSan can find wrong, is the same for all variants, and
# the generic one is instrumented.
%D%/cpu/libfdk_avx2_a-isa_gemm.$(OBJEXT): FDD_SAN = -fno-omit-frame-pointer
%D%/cpu/libfdk_avx512_a-isa_gemm.$(OBJEXT): FDD_SAN = -fno-omit-frame-pointer
else
# Under ASan+UBSan this file alone takes the compiler 108 s, of 358 s for everything.
# tests/check-san leaves it uninstrumented, in its long form not.
%D%/cpu/libfdk_avx512_a-isa_gemm.$(OBJEXT): FDK_NO_SAN = $(FDK_GEMM_NO_SAN)
endif
endif

# The backend and its tables; kernels for every device; those for sm_90a.
FDK_CUDA_BASE_CU = %D%/cuda/attention_plan.cu %D%/cuda/backend_cuda.cu \
	%D%/cuda/collective.cu %D%/cuda/fusion.cu %D%/cuda/gemm_lt.cu %D%/cuda/gemm_lt_file.cu \
	%D%/cuda/hooks.cu %D%/cuda/memory.cu %D%/cuda/ops_attention.cu %D%/cuda/ops_gemm.cu \
	%D%/cuda/probe.cu %D%/cuda/stream.cu
FDK_CUDA_GENERIC_CU = %D%/cuda/generic/attention_plain.cu %D%/cuda/generic/gemm_tile.cu \
	%D%/cuda/generic/load.cu %D%/cuda/generic/qkv.cu %D%/cuda/generic/rows.cu \
	%D%/cuda/generic/sample.cu
FDK_CUDA_SM90_CU = %D%/cuda/sm90/attention_chunk.cu %D%/cuda/sm90/attention_prefill.cu \
	%D%/cuda/sm90/attention_split.cu %D%/cuda/sm90/attention_double.cu \
	%D%/cuda/sm90/gemm_quant.cu \
	%D%/cuda/sm90/gemm_quant_mid.cu %D%/cuda/sm90/gemm_quant_wide.cu \
	%D%/cuda/sm90/gemm_quant_widen.cu %D%/cuda/sm90/gemm_silu.cu %D%/cuda/sm90/gemm_stream.cu \
	%D%/cuda/sm90/gemm_stream_mid.cu %D%/cuda/sm90/gemm_stream_wide.cu %D%/cuda/sm90/mega.cu \
	%D%/cuda/sm90/mega_kernel.cu
FDK_CUDA_CU = $(FDK_CUDA_BASE_CU) $(FDK_CUDA_GENERIC_CU) $(FDK_CUDA_SM90_CU)
FDK_CUDA_BASE_CUH = %D%/cuda/attention.cuh %D%/cuda/collective_wait.cuh \
	%D%/cuda/fdk_cuda.cuh %D%/cuda/gemm_lt.cuh \
	%D%/cuda/generic/kv.cuh %D%/cuda/generic/qkv_lanes.cuh %D%/cuda/generic/sample_bins.cuh \
	%D%/cuda/generic/sample_choose.cuh %D%/cuda/generic/sample_keep.cuh \
	%D%/cuda/generic/sample_part.cuh %D%/cuda/generic/sample_reduce.cuh \
	%D%/cuda/generic/sample_row.cuh %D%/cuda/generic/vec8.cuh
FDK_CUDA_SM90_CUH = %D%/cuda/sm90/attention_prefill_copy.cuh \
	%D%/cuda/sm90/attention_prefill_mma.cuh %D%/cuda/sm90/attention_split.cuh \
	%D%/cuda/sm90/attention_split_merge.cuh %D%/cuda/sm90/attention_split_mma.cuh \
	%D%/cuda/sm90/attention_split_unit.cuh %D%/cuda/sm90/gemm_quant.cuh \
	%D%/cuda/sm90/gemm_quant_mid.cuh %D%/cuda/sm90/gemm_quant_wgmma.cuh \
	%D%/cuda/sm90/gemm_stream.cuh %D%/cuda/sm90/mega.cuh %D%/cuda/sm90/mega_attention.cuh \
	%D%/cuda/sm90/mega_gemm.cuh %D%/cuda/sm90/mega_meet.cuh %D%/cuda/sm90/mega_ring.cuh \
	%D%/cuda/sm90/mega_words.cuh %D%/cuda/sm90/mega_x.cuh %D%/cuda/sm90/pair.cuh %D%/cuda/sm90/sm90.cuh
# Programs contain the backend; tests share one object of it, or a bundle of
# them would hold it forty times. Its name is its place, which `make bundle` changes.
if HAVE_CUDA
noinst_LIBRARIES += libfdk_cuda.a
libfdk_cuda_a_SOURCES = $(FDK_CUDA_CU)
FDK_CUDA_O = $(FDK_CUDA_CU:.cu=.o)
$(FDK_CUDA_O): %D%/fdk.h %D%/collective.h %D%/collective_channel.h %D%/collective_plan.h %D%/program.h %D%/cuda/hooks.h $(FDK_CUDA_BASE_CUH)
$(FDK_CUDA_SM90_CU:.cu=.o): $(FDK_CUDA_SM90_CUH)
%D%/cuda/collective.o: %D%/cuda/collective_packet.cuh %D%/cuda/collective_ahead.cuh
libfdk_cuda_tests.so: $(FDK_CUDA_O)
	$(AM_V_CCLD)$(CC) -shared -Wl,-soname,$(abs_builddir)/$@ -o $@ $(FDK_CUDA_O) $(CUDA_LIBS)
CLEANFILES += libfdk_cuda_tests.so
KERNEL_LIBS += libfdk_cuda.a $(HOST_KERNEL_LIBS) $(CUDA_LIBS) -lm
KERNEL_TEST_LIBS += $(HOST_KERNEL_LIBS) libfdk_cuda_tests.so -lm
else
libfdkernels_a_SOURCES += %D%/cuda/stub.c
KERNEL_LIBS += $(HOST_KERNEL_LIBS) -lm
KERNEL_TEST_LIBS += $(HOST_KERNEL_LIBS) -lm
endif

.cu.o:
	@mkdir -p $(@D)
	$(AM_V_NVCC)$(NVCC) $(NVCC_GENCODE) -std=c++17 -O3 -Xfatbin=-compress-all $(NVCCFLAGS) -I$(srcdir) \
	    -Xcompiler -fPIC,-fno-exceptions,-fno-rtti,-fno-threadsafe-statics \
	    $(FDD_NVCC_MAP) -c -o $@ $<
AM_V_NVCC = $(am__v_NVCC_@AM_V@)
am__v_NVCC_ = $(am__v_NVCC_@AM_DEFAULT_V@)
am__v_NVCC_0 = @echo "  NVCC    " $@;
am__v_NVCC_1 =
