# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
bin_PROGRAMS += fdctl fdbench
noinst_LIBRARIES += libfdtools.a
libfdtools_a_SOURCES = \
	tools/fdctl.h \
	tools/fdctl_admin.c \
	tools/fdctl_cli.c \
	tools/fdctl_conn.c \
	tools/fdctl_doctor.c \
	tools/fdctl_doctor.h \
	tools/fdctl_doctor_fdd.c \
	tools/fdctl_doctor_gpu.c \
	tools/fdctl_doctor_limits.c \
	tools/fdctl_doctor_nvml.c \
	tools/fdctl_doctor_sys.c \
	tools/fdctl_generate.c \
	tools/fdctl_input.c \
	tools/fdctl_ls.c \
	tools/fdctl_main.c \
	tools/fdctl_memory.c \
	tools/fdctl_params.c \
	tools/fdctl_perfetto.c \
	tools/fdctl_profile.c \
	tools/fdctl_prom.c \
	tools/fdctl_result.c \
	tools/fdctl_seg.c \
	tools/fdctl_show.c \
	tools/fdctl_stat.c \
	tools/fdctl_stat.h \
	tools/fdctl_text.c \
	tools/fdctl_top.c \
	tools/fdctl_top.h \
	tools/fdctl_top_canvas.c \
	tools/fdctl_top_canvas.h \
	tools/fdctl_top_data.c \
	tools/fdctl_top_draw.c \
	tools/fdctl_top_link.c \
	tools/fdctl_top_rows.c \
	tools/fdctl_top_table.c \
	tools/fdctl_top_term.c \
	tools/fdctl_trace.c \
	tools/fdctl_trace.h \
	tools/fdctl_trace_read.c \
	tools/fdctl_trace_show.c \
	tools/tbl/vllm_names.h
libfdtools_a_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(NCURSES_CFLAGS) \
	-DFDD_NVCC_GENCODE='"$(NVCC_GENCODE)"'
FDTOOLS_LIBS = libfdtools.a $(CLIENT_LIBS) $(COMMON_LIBS) $(JANSSON_LIBS) $(NCURSES_LIBS) -lm

fdctl_SOURCES = %D%/fdctl.c
fdctl_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
fdctl_LDADD = $(FDTOOLS_LIBS)
FDBENCH_SOURCES = \
	tools/fdbench/against.c \
	tools/fdbench/curves.c \
	tools/fdbench/fdbench.h \
	tools/fdbench/html.c \
	tools/fdbench/input.c \
	tools/fdbench/ipc.c \
	tools/fdbench/latency.c \
	tools/fdbench/load.c \
	tools/fdbench/plot.c \
	tools/fdbench/report.c \
	tools/fdbench/report_priv.h \
	tools/fdbench/search.c \
	tools/fdbench/serve.c \
	tools/fdbench/setup.c \
	tools/fdbench/start.c \
	tools/fdbench/stat.c \
	tools/fdbench/work.c \
	tools/fdbench/work.h
fdbench_SOURCES = %D%/fdbench/main.c $(FDBENCH_SOURCES)
fdbench_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
fdbench_LDADD = $(FDTOOLS_LIBS)
dist_man_MANS += %D%/fdctl.1 %D%/fdbench.1

EXTRA_PROGRAMS += gen_params
gen_params_SOURCES = %D%/dev/gen_params.c
gen_params_LDADD = $(COMMON_LIBS)
