bin_PROGRAMS += fdctl
FDCTL_SOURCES = \
	tools/fdctl.h \
	tools/fdctl_admin.c \
	tools/fdctl_cli.c \
	tools/fdctl_conn.c \
	tools/fdctl_generate.c \
	tools/fdctl_input.c \
	tools/fdctl_params.c \
	tools/fdctl_result.c \
	tools/fdctl_show.c \
	tools/fdctl_stat.c \
	tools/fdctl_text.c
fdctl_SOURCES = %D%/fdctl.c $(FDCTL_SOURCES)
fdctl_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
fdctl_LDADD = $(CLIENT_LIBS) $(COMMON_LIBS) $(JANSSON_LIBS)
dist_man_MANS += %D%/fdctl.1
EXTRA_DIST += %D%/quickstart %D%/runtests %D%/setup %D%/dev/group.sh

EXTRA_PROGRAMS += gen_params
gen_params_SOURCES = %D%/dev/gen_params.c
gen_params_LDADD = $(COMMON_LIBS)
