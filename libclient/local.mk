# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
lib_LTLIBRARIES += libclient/libfdclient.la
libclient_libfdclient_la_SOURCES = \
	%D%/attach.c \
	%D%/call.c \
	%D%/error.c \
	%D%/fdname.c \
	%D%/fdname.h \
	%D%/fdwhere.c \
	%D%/fdwhere.h \
	%D%/handle.c \
	%D%/poll.c \
	%D%/priv.h \
	%D%/record.c \
	%D%/send.c \
	%D%/submit.c
libclient_libfdclient_la_LDFLAGS = $(AM_LDFLAGS) -version-info 0:0:0 \
	-Wl,--version-script=$(srcdir)/%D%/fdclient.map -no-undefined
EXTRA_libclient_libfdclient_la_DEPENDENCIES = $(srcdir)/%D%/fdclient.map
CLIENT_LIBS = libclient/libfdclient.la

fddincludedir = $(includedir)/fdd
fddinclude_HEADERS = %D%/fdclient.h %D%/fdproto.h %D%/fdring.h
fddtblincludedir = $(includedir)/fdd/tbl
fddtblinclude_HEADERS = %D%/tbl/details.h %D%/tbl/files.h \
	%D%/tbl/items.h %D%/tbl/status.h
pkgconfigdir = $(libdir)/pkgconfig
nodist_pkgconfig_DATA = %D%/libfdclient.pc
dist_man_MANS += %D%/fdclient.3
