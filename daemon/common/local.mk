# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
noinst_LIBRARIES += libfddcommon.a
libfddcommon_a_SOURCES = \
	%D%/cgroup.c \
	%D%/cgroup.h \
	%D%/dir.c \
	%D%/dir.h \
	%D%/cmdtable.c \
	%D%/cmdtable.h \
	%D%/clk.c \
	%D%/clk.h \
	%D%/counter.c \
	%D%/counter.h \
	%D%/devowner.c \
	%D%/devowner.h \
	%D%/devlist.c \
	%D%/devlist.h \
	%D%/harden.c \
	%D%/harden.h \
	%D%/link.c \
	%D%/link.h \
	%D%/listened.c \
	%D%/listened.h \
	%D%/log.c \
	%D%/log.h \
	%D%/log_form.c \
	%D%/log_out.c \
	%D%/log_priv.h \
	%D%/log_queue.c \
	%D%/log_queue.h \
	%D%/log_rate.c \
	%D%/mem.c \
	%D%/mem.h \
	%D%/obj.h \
	%D%/notify.c \
	%D%/notify.h \
	%D%/panic.c \
	%D%/panic.h \
	%D%/param.c \
	%D%/param.h \
	%D%/param_check.c \
	%D%/param_doc.c \
	%D%/param_file.c \
	%D%/param_load.c \
	%D%/param_name.c \
	%D%/param_named.c \
	%D%/param_note.c \
	%D%/param_priv.h \
	%D%/param_say.c \
	%D%/param_set.c \
	%D%/param_table.c \
	%D%/param_value.c \
	%D%/param_word.c \
	%D%/prom.c \
	%D%/prom.h \
	%D%/sha256.c \
	%D%/sha256.h \
	%D%/slice.c \
	%D%/slice.h \
	%D%/text.c \
	%D%/text.h \
	%D%/trace.c \
	%D%/trace.h \
	%D%/version.c \
	%D%/version.h \
	daemon/tbl/counters.h \
	daemon/tbl/ctl_cmds.h \
	daemon/tbl/debug_bits.h \
	daemon/tbl/histograms.h \
	daemon/tbl/log_topics.h \
	daemon/tbl/param_notes.h \
	daemon/tbl/params.h \
	daemon/tbl/vllm_names.h \
	libclient/fdname.c \
	libclient/fdname.h \
	libclient/fdwhere.c \
	libclient/fdwhere.h
libfddcommon_a_CFLAGS = $(AM_CFLAGS) $(INIH_CFLAGS) $(JANSSON_CFLAGS)
# What fdd-http compiles once more, with its own tables.
PARAM_CODE = \
	%D%/param.c \
	%D%/param_doc.c \
	%D%/param_file.c \
	%D%/param_load.c \
	%D%/param_name.c \
	%D%/param_named.c \
	%D%/param_note.c \
	%D%/param_say.c \
	%D%/param_set.c \
	%D%/param_table.c \
	%D%/param_value.c \
	%D%/param_word.c
COMMON_LIBS = libfddcommon.a $(INIH_LIBS) $(JANSSON_LIBS)

# One file is compiled again when the commit changes.
%D%/commit.h: FORCE
	@$(MKDIR_P) $(@D)
	@$(srcdir)/tools/dev/version.sh --header $@
FORCE:
.PHONY: FORCE
%D%/libfddcommon_a-version.$(OBJEXT): %D%/commit.h
BUILT_SOURCES += %D%/commit.h
CLEANFILES += %D%/commit.h
