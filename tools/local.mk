# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
bin_PROGRAMS += fdctl fdbench
noinst_LIBRARIES += libfdtools.a
libfdtools_a_SOURCES = \
	tools/fdctl/admin.c \
	tools/fdctl/chat/chat.c \
	tools/fdctl/commands.h \
	tools/fdctl/doctor/doctor.c \
	tools/fdctl/doctor/doctor.h \
	tools/fdctl/doctor/fdd.c \
	tools/fdctl/doctor/gpu.c \
	tools/fdctl/doctor/limits.c \
	tools/fdctl/doctor/sys.c \
	tools/fdctl/generate.c \
	tools/fdctl/lib/cli.c \
	tools/fdctl/lib/conn.c \
	tools/fdctl/lib/fct.h \
	tools/fdctl/lib/input.c \
	tools/fdctl/lib/params.c \
	tools/fdctl/lib/program.c \
	tools/fdctl/lib/result.c \
	tools/fdctl/lib/seg.c \
	tools/fdctl/lib/show.c \
	tools/fdctl/ls.c \
	tools/fdctl/profile.c \
	tools/fdctl/stat/stat.c \
	tools/fdctl/stat/stat.h \
	tools/fdctl/texts.c \
	tools/fdctl/top/canvas.c \
	tools/fdctl/top/daemon.c \
	tools/fdctl/top/draw.c \
	tools/fdctl/top/rows.c \
	tools/fdctl/top/top.c \
	tools/fdctl/top/top.h \
	tools/fdctl/trace/perfetto.c \
	tools/fdctl/trace/read.c \
	tools/fdctl/trace/show.c \
	tools/fdctl/trace/trace.c \
	tools/fdctl/trace/trace.h \
	tools/fdctl/up.c
libfdtools_a_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(LIBEDIT_CFLAGS) $(NCURSES_CFLAGS) \
	-DFDD_NVCC_GENCODE='"$(NVCC_GENCODE)"'
FDTOOLS_LIBS = libfdtools.a $(CLIENT_LIBS) $(CHAT_LIBS) $(COMMON_LIBS) $(JANSSON_LIBS) \
	$(LIBEDIT_LIBS) $(NCURSES_LIBS) -lm

fdctl_SOURCES = %D%/fdctl/main.c
fdctl_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
fdctl_LDADD = $(FDTOOLS_LIBS)
noinst_LIBRARIES += libfdbench.a
libfdbench_a_SOURCES = \
	tools/fdbench/against.c \
	tools/fdbench/fdbench.h \
	tools/fdbench/html.c \
	tools/fdbench/ipc.c \
	tools/fdbench/latency.c \
	tools/fdbench/load.c \
	tools/fdbench/report.c \
	tools/fdbench/serve.c \
	tools/fdbench/setup.c \
	tools/fdbench/start.c \
	tools/fdbench/stat.c \
	tools/fdbench/work.c
libfdbench_a_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
FDBENCH_LIBS = libfdbench.a $(FDTOOLS_LIBS)
fdbench_SOURCES = %D%/fdbench/main.c
fdbench_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
fdbench_LDADD = $(FDBENCH_LIBS)

# The page of a report, as the bytes that html.c includes.
%D%/fdbench/report.html.inc: %D%/fdbench/report.html %D%/fdbench/embed
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(srcdir)/%D%/fdbench/embed $(srcdir)/%D%/fdbench/report.html >$@.tmp && mv $@.tmp $@
%D%/fdbench/libfdbench_a-html.$(OBJEXT): %D%/fdbench/report.html.inc
BUILT_SOURCES += %D%/fdbench/report.html.inc
CLEANFILES += %D%/fdbench/report.html.inc
dist_man_MANS += %D%/fdctl.1 %D%/fdbench.1

EXTRA_PROGRAMS += gen_params
gen_params_SOURCES = %D%/dev/gen_params.c
%D%/dev/fdd.ini.5.inc: %D%/dev/fdd.ini.5.in %D%/fdbench/embed
	@$(MKDIR_P) $(@D)
	$(AM_V_GEN)$(srcdir)/%D%/fdbench/embed $(srcdir)/%D%/dev/fdd.ini.5.in >$@.tmp && mv $@.tmp $@
%D%/dev/gen_params.$(OBJEXT): %D%/dev/fdd.ini.5.inc
CLEANFILES += %D%/dev/fdd.ini.5.inc
gen_params_LDADD = $(COMMON_LIBS)
