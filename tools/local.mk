# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
bin_PROGRAMS += fdctl fdbench
noinst_LIBRARIES += libfdtools.a
libfdtools_a_SOURCES = \
	tools/fdctl/lib/admin.c \
	tools/fdctl/lib/admin.h \
	tools/fdctl/lib/canvas.c \
	tools/fdctl/lib/canvas.h \
	tools/fdctl/lib/cli.c \
	tools/fdctl/lib/cli.h \
	tools/fdctl/lib/conn.c \
	tools/fdctl/lib/fct.h \
	tools/fdctl/lib/input.c \
	tools/fdctl/lib/lines.c \
	tools/fdctl/lib/lines.h \
	tools/fdctl/lib/params.c \
	tools/fdctl/lib/program.c \
	tools/fdctl/lib/result.c \
	tools/fdctl/lib/rules.c \
	tools/fdctl/lib/seg.c \
	tools/fdctl/lib/show.c \
	tools/fdctl/cancel.c \
	tools/fdctl/chat/chat.c \
	tools/fdctl/chat/talk.c \
	tools/fdctl/chat/talk.h \
	tools/fdctl/commands.h \
	tools/fdctl/config.c \
	tools/fdctl/debug.c \
	tools/fdctl/detokenize.c \
	tools/fdctl/doctor/doctor.c \
	tools/fdctl/doctor/doctor.h \
	tools/fdctl/doctor/fdd.c \
	tools/fdctl/doctor/gpu.c \
	tools/fdctl/doctor/limits.c \
	tools/fdctl/doctor/nvml.c \
	tools/fdctl/doctor/sys.c \
	tools/fdctl/drain.c \
	tools/fdctl/generate.c \
	tools/fdctl/ls.c \
	tools/fdctl/memory.c \
	tools/fdctl/pause.c \
	tools/fdctl/ping.c \
	tools/fdctl/model.c \
	tools/fdctl/plain.c \
	tools/fdctl/profile.c \
	tools/fdctl/reload.c \
	tools/fdctl/set.c \
	tools/fdctl/stat/stat.c \
	tools/fdctl/stat/stat.h \
	tools/fdctl/stat/textfile.c \
	tools/fdctl/status.c \
	tools/fdctl/stop.c \
	tools/fdctl/tokenize.c \
	tools/fdctl/top/data.c \
	tools/fdctl/top/draw.c \
	tools/fdctl/top/link.c \
	tools/fdctl/top/rows.c \
	tools/fdctl/top/table.c \
	tools/fdctl/top/term.c \
	tools/fdctl/top/top.c \
	tools/fdctl/top/top.h \
	tools/fdctl/up.c \
	tools/fdctl/trace/perfetto.c \
	tools/fdctl/trace/read.c \
	tools/fdctl/trace/show.c \
	tools/fdctl/trace/trace.c \
	tools/fdctl/trace/trace.h
libfdtools_a_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(LIBEDIT_CFLAGS) $(NCURSES_CFLAGS) \
	-DFDD_NVCC_GENCODE='"$(NVCC_GENCODE)"'
FDTOOLS_LIBS = libfdtools.a $(CLIENT_LIBS) $(CHAT_LIBS) $(COMMON_LIBS) $(JANSSON_LIBS) \
	$(LIBEDIT_LIBS) $(NCURSES_LIBS) -lm

fdctl_SOURCES = %D%/fdctl/main.c
fdctl_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
fdctl_LDADD = $(FDTOOLS_LIBS)
FDBENCH_SOURCES = \
	tools/fdbench/against.c \
	tools/fdbench/curves.c \
	tools/fdbench/fdbench.h \
	tools/fdbench/files.c \
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
