# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The commented configuration is an example: an installed one is never
# overwritten.
fddconfdir = $(pkgdatadir)
dist_fddconf_DATA = %D%/fdd.ini
completiondir = $(datadir)/bash-completion/completions
dist_completion_DATA = %D%/completions/fdbench.bash %D%/completions/fdctl.bash
unitdir = $(prefix)/lib/systemd/system
nodist_unit_DATA = %D%/fdd.service.out %D%/fdd-textfile.service.out \
	%D%/fdd-at.service.out %D%/fdd-at.socket.out
dist_unit_DATA = %D%/fdd.socket
grafanadir = $(pkgdatadir)/grafana
dist_grafana_DATA = %D%/grafana/fdd.json
sysusersdir = $(prefix)/lib/sysusers.d
dist_sysusers_DATA = %D%/sysusers.d/fdd.conf
tmpfilesdir = $(prefix)/lib/tmpfiles.d
dist_tmpfiles_DATA = %D%/tmpfiles.d/fdd.conf

%D%/fdd.service.out: %D%/fdd.service Makefile
	@mkdir -p $(@D)
	$(AM_V_GEN)$(SED) 's#/usr/sbin/fdd#$(sbindir)/fdd#; s#/usr/bin/fdctl#$(bindir)/fdctl#' \
		$(srcdir)/%D%/fdd.service >$@
%D%/fdd-textfile.service.out: %D%/fdd-textfile.service Makefile
	@mkdir -p $(@D)
	$(AM_V_GEN)$(SED) 's#/usr/bin/fdctl#$(bindir)/fdctl#' $(srcdir)/%D%/fdd-textfile.service >$@
# The units of instances, fdd@.service and fdd@.socket: the same but for the name.
%D%/fdd-at.service.out: %D%/fdd.service.out %D%/instance.sed
	$(AM_V_GEN)$(SED) -f $(srcdir)/%D%/instance.sed %D%/fdd.service.out >$@
%D%/fdd-at.socket.out: %D%/fdd.socket %D%/instance.sed
	@mkdir -p $(@D)
	$(AM_V_GEN)$(SED) -f $(srcdir)/%D%/instance.sed $(srcdir)/%D%/fdd.socket >$@
CLEANFILES += %D%/fdd.service.out %D%/fdd-textfile.service.out \
	%D%/fdd-at.service.out %D%/fdd-at.socket.out
install-data-hook:
	cd $(DESTDIR)$(unitdir) && mv -f fdd.service.out fdd.service && \
		mv -f fdd-textfile.service.out fdd-textfile.service && \
		mv -f fdd-at.service.out fdd@.service && mv -f fdd-at.socket.out fdd@.socket
	cd $(DESTDIR)$(completiondir) && mv -f fdbench.bash fdbench && mv -f fdctl.bash fdctl
uninstall-hook:
	rm -f $(DESTDIR)$(unitdir)/fdd.service $(DESTDIR)$(unitdir)/fdd-textfile.service \
		$(DESTDIR)$(unitdir)/fdd@.service $(DESTDIR)$(unitdir)/fdd@.socket \
		$(DESTDIR)$(completiondir)/fdbench $(DESTDIR)$(completiondir)/fdctl
