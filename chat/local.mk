# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Chat templates and answers. It uses nothing of the daemon.
lib_LTLIBRARIES += chat/libfdchat.la
chat_libfdchat_la_SOURCES = \
	%D%/answer.c %D%/answer.h \
	%D%/arena.c %D%/arena.h \
	%D%/call.c \
	%D%/chat.c %D%/fdchat.h \
	%D%/eval.c %D%/eval.h \
	%D%/filter.c \
	%D%/format.c %D%/format.h \
	%D%/json.c %D%/json.h \
	%D%/lex.c \
	%D%/literal.c \
	%D%/method.c \
	%D%/object.c \
	%D%/operator.c \
	%D%/parse.c %D%/parse.h %D%/template.h \
	%D%/expression.c %D%/global.c \
	%D%/spec.c \
	%D%/strings.c \
	%D%/test.c \
	%D%/types.c %D%/types.h \
	%D%/value.c %D%/value.h
chat_libfdchat_la_CFLAGS = $(AM_CFLAGS) $(UTF8PROC_CFLAGS)
chat_libfdchat_la_LIBADD = $(UTF8PROC_LIBS) -lm
chat_libfdchat_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 \
	-Wl,--version-script=$(srcdir)/%D%/fdchat.map -no-undefined
EXTRA_chat_libfdchat_la_DEPENDENCIES = $(srcdir)/%D%/fdchat.map
CHAT_LIBS = chat/libfdchat.la

fddinclude_HEADERS += %D%/fdchat.h
nodist_pkgconfig_DATA += %D%/libfdchat.pc
dist_man_MANS += %D%/fdchat.3
