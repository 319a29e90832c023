# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The HTTP gateway. Its parameters are a table of their own for daemon/common's code,
# which is compiled once more: these objects come before those of libfddcommon.a.
noinst_LIBRARIES += libfddhttp.a
libfddhttp_a_SOURCES = \
	%D%/ask.c %D%/ask.h \
	%D%/buf.c %D%/buf.h \
	%D%/conn.c %D%/conn.h \
	%D%/gateway.h \
	%D%/gen.c %D%/gen.h %D%/gen_priv.h \
	%D%/h1.c %D%/h1.h \
	%D%/inbox.c %D%/inbox.h \
	%D%/info.c \
	%D%/items.c %D%/items.h \
	%D%/json.c %D%/json.h \
	%D%/keys.c %D%/keys.h \
	%D%/link.c %D%/link.h \
	%D%/listen.c %D%/listen.h \
	%D%/live.c %D%/live.h \
	%D%/loop.c %D%/loop.h %D%/loop_priv.h \
	%D%/loops.c \
	%D%/messages.c %D%/messages.h \
	%D%/metrics.c %D%/metrics.h \
	%D%/model.c %D%/model.h \
	%D%/page.c %D%/page.h \
	%D%/par_check.c \
	%D%/peers.c %D%/peers.h \
	%D%/pick.c \
	%D%/prep.c %D%/prep.h \
	%D%/problem.c %D%/problem.h \
	%D%/prompt.c \
	%D%/responses.c \
	%D%/route.c %D%/route.h \
	%D%/served.c %D%/served.h \
	%D%/shape.c %D%/shape.h \
	%D%/start.c \
	%D%/stats.c %D%/stats.h \
	%D%/tokens.c \
	%D%/truncate.c \
	%D%/vocab.c %D%/vocab.h \
	%D%/tbl/fields.h \
	%D%/tbl/param_notes.h \
	%D%/tbl/params.h \
	%D%/tbl/routes.h \
	$(PARAM_CODE)
HTTP_TABLES = -DPAR_TABLE='"http/tbl/params.h"' -DPAR_NOTES='"http/tbl/param_notes.h"'
libfddhttp_a_CPPFLAGS = $(AM_CPPFLAGS) $(HTTP_TABLES)
libfddhttp_a_CFLAGS = $(AM_CFLAGS) $(INIH_CFLAGS) $(JANSSON_CFLAGS)
HTTP_LIBS = libfddhttp.a $(CLIENT_LIBS) $(CHAT_LIBS) $(COMMON_LIBS)

sbin_PROGRAMS += fdd-http
fdd_http_SOURCES = %D%/main.c
fdd_http_CPPFLAGS = $(AM_CPPFLAGS) $(HTTP_TABLES)
fdd_http_LDADD = $(HTTP_LIBS) -lm
dist_man_MANS += %D%/fdd-http.8 %D%/fdd-http.ini.5

# The page goes into the program as the bytes of an array.
%D%/page.inc: %D%/page.html
	@mkdir -p $(@D)
	$(AM_V_GEN)od -An -v -tu1 $(srcdir)/%D%/page.html | $(SED) 's/[0-9][0-9]*/&,/g' >$@.new && mv -f $@.new $@
%D%/libfddhttp_a-page.$(OBJEXT): %D%/page.inc
BUILT_SOURCES += %D%/page.inc
CLEANFILES += %D%/page.inc
EXTRA_DIST += %D%/page.html
