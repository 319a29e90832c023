# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
lib_LTLIBRARIES += libclient/libfdclient.la
libclient_libfdclient_la_SOURCES = \
	%D%/abi.c \
	%D%/attach.c \
	%D%/call.c \
	%D%/error.c \
	%D%/fdname.c \
	%D%/fdname.h \
	%D%/fdwhere.c \
	%D%/fdwhere.h \
	%D%/handle.c \
	%D%/journal.c \
	%D%/loop.c \
	%D%/params.c \
	%D%/poll.c \
	%D%/priv.h \
	%D%/reconnect.c \
	%D%/reconnect.h \
	%D%/record.c \
	%D%/send.c \
	%D%/session.c \
	%D%/submit.c \
	%D%/tags.c
libclient_libfdclient_la_LDFLAGS = $(AM_LDFLAGS) -version-info 1:0:0 \
	-Wl,--version-script=$(srcdir)/%D%/libfdclient.map -no-undefined
EXTRA_libclient_libfdclient_la_DEPENDENCIES = $(srcdir)/%D%/libfdclient.map
CLIENT_LIBS = libclient/libfdclient.la

fddincludedir = $(includedir)/fdd
fddinclude_HEADERS = %D%/fdclient.h %D%/fdclient_params.h %D%/fdclient_types.h \
	%D%/fdclient.hpp %D%/fdclient_base.hpp
# The wire: a program that links the library needs none of it.
EXTRA_DIST += %D%/fdproto.h %D%/fdring.h %D%/tbl/details.h %D%/tbl/files.h \
	%D%/tbl/items.h %D%/tbl/status.h
pkgconfigdir = $(libdir)/pkgconfig
nodist_pkgconfig_DATA = %D%/libfdclient.pc
dist_man_MANS += %D%/fdclient.3
