# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Chat templates and answers. It uses nothing of the daemon.
noinst_LIBRARIES += libfdchat.a
libfdchat_a_SOURCES = \
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
	%D%/parse.c %D%/template.h \
	%D%/types.c %D%/types.h \
	%D%/value.c %D%/value.h
libfdchat_a_CFLAGS = $(AM_CFLAGS) $(UTF8PROC_CFLAGS)
