# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libfddgate.a
libfddgate_a_SOURCES = \
	%D%/admit.c \
	%D%/affinity.c \
	%D%/affinity.h \
	%D%/admit.h \
	%D%/check.c \
	%D%/check.h \
	%D%/blob.c \
	%D%/blob.h \
	%D%/pages.c \
	%D%/pages.h \
	%D%/client.c \
	%D%/client.h \
	%D%/dispatch.c \
	%D%/dispatch.h \
	%D%/life.c \
	%D%/life.h \
	%D%/request.c \
	%D%/request.h \
	%D%/watch.c \
	%D%/watch.h \
	%D%/wlink.c \
	%D%/wlink.h \
	%D%/env.h \
	%D%/conf.c \
	%D%/conf.h \
	%D%/advice.c \
	%D%/advice.h \
	%D%/control.c \
	%D%/control.h \
	%D%/control_ask.c \
	%D%/control_cmds.c \
	%D%/control_config.c \
	%D%/control_exec.c \
	%D%/control_priv.h \
	%D%/control_reply.c \
	%D%/crash.c \
	%D%/crash.h \
	%D%/svcrate.c \
	%D%/svcrate.h \
	%D%/fair.c \
	%D%/fair.h \
	%D%/gate.c \
	%D%/gate.h \
	%D%/gauge.c \
	%D%/gauge.h \
	%D%/hang.c \
	%D%/hang.h \
	%D%/heap.c \
	%D%/heap.h \
	%D%/intake.c \
	%D%/intake.h \
	%D%/journal.c \
	%D%/journal.h \
	%D%/loopstat.c \
	%D%/loopstat.h \
	%D%/listen.c \
	%D%/listen.h \
	%D%/memfile.c \
	%D%/memfile.h \
	%D%/names.c \
	%D%/names.h \
	%D%/offloop.c \
	%D%/offloop.h \
	%D%/opening.c \
	%D%/opening.h \
	%D%/peer.c \
	%D%/peer.h \
	%D%/places.c \
	%D%/places.h \
	%D%/region.c \
	%D%/region.h \
	%D%/relay.c \
	%D%/relay.h \
	%D%/rest.c \
	%D%/rolling.c \
	%D%/rolling.h \
	%D%/rest.h \
	%D%/share.h \
	%D%/reqlog.c \
	%D%/reqlog.h \
	%D%/retry.c \
	%D%/retry.h \
	%D%/runtime.c \
	%D%/runtime.h \
	%D%/session.c \
	%D%/session.h \
	%D%/statseg.c \
	%D%/statseg.h \
	%D%/supervise.c \
	%D%/supervise.h
libfddgate_a_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
GATE_LIBS = libfddgate.a $(COMMON_LIBS) $(JANSSON_LIBS)

sbin_PROGRAMS += fdd
fdd_SOURCES = %D%/main.c
fdd_LDADD = $(GATE_LIBS)
dist_man_MANS += daemon/fdd.8 daemon/fdd.ini.5
