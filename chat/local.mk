# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Chat templates. It uses nothing of the daemon.
noinst_LIBRARIES += libfdchat.a
libfdchat_a_SOURCES = \
	%D%/arena.c %D%/arena.h \
	%D%/chat.c %D%/fdchat.h \
	%D%/eval.c %D%/eval.h \
	%D%/filter.c \
	%D%/json.c %D%/json.h \
	%D%/lex.c \
	%D%/method.c \
	%D%/parse.c %D%/template.h \
	%D%/value.c %D%/value.h
libfdchat_a_CFLAGS = $(AM_CFLAGS) $(UTF8PROC_CFLAGS)
