# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# The commented configuration is an example: an installed one is never
# overwritten.
fddconfdir = $(pkgdatadir)
dist_fddconf_DATA = %D%/fdd.ini %D%/fdd-http.ini %D%/fdd-http.trusted.ini
dist_fddconf_DATA += %D%/completions/complete.sh
# Each shell looks for a file of the command's name; zsh reads which it is for.
bashcompdir = $(datadir)/bash-completion/completions
nodist_bashcomp_DATA = %D%/completions/fdd.bash.out
zshcompdir = $(datadir)/zsh/site-functions
nodist_zshcomp_DATA = %D%/completions/_fdd.out
fishcompdir = $(datadir)/fish/vendor_completions.d
nodist_fishcomp_DATA = %D%/completions/fdd.fish.out
unitdir = $(prefix)/lib/systemd/system
nodist_unit_DATA = %D%/fdd.service.out %D%/fdd-textfile.service.out \
	%D%/fdd-at.service.out %D%/fdd-at.socket.out %D%/fdd-http.service.out
dist_unit_DATA = %D%/fdd.socket %D%/fdd-http.socket
grafanadir = $(pkgdatadir)/grafana
dist_grafana_DATA = %D%/grafana/fdd.json
sysusersdir = $(prefix)/lib/sysusers.d
dist_sysusers_DATA = %D%/sysusers.d/fdd.conf %D%/sysusers.d/fdd-http.conf
tmpfilesdir = $(prefix)/lib/tmpfiles.d
dist_tmpfiles_DATA = %D%/tmpfiles.d/fdd.conf

%D%/fdd.service.out: %D%/fdd.service Makefile
	@mkdir -p $(@D)
	$(AM_V_GEN)$(SED) 's#/usr/sbin/fdd#$(sbindir)/fdd#; s#/usr/bin/fdctl#$(bindir)/fdctl#' \
		$(srcdir)/%D%/fdd.service >$@
%D%/fdd-http.service.out: %D%/fdd-http.service Makefile
	@mkdir -p $(@D)
	$(AM_V_GEN)$(SED) 's#/usr/sbin/fdd#$(sbindir)/fdd#' $(srcdir)/%D%/fdd-http.service >$@
%D%/fdd-textfile.service.out: %D%/fdd-textfile.service Makefile
	@mkdir -p $(@D)
	$(AM_V_GEN)$(SED) 's#/usr/bin/fdctl#$(bindir)/fdctl#' $(srcdir)/%D%/fdd-textfile.service >$@
COMPLETIONS = %D%/completions/fdd.bash %D%/completions/_fdd %D%/completions/fdd.fish
%D%/completions/fdd.bash.out %D%/completions/_fdd.out %D%/completions/fdd.fish.out: \
		$(COMPLETIONS) Makefile
	@mkdir -p $(@D)
	$(AM_V_GEN)$(SED) 's#/usr/share/fdd/#$(pkgdatadir)/#' $(srcdir)/$(@:.out=) >$@
CLEANFILES += %D%/completions/fdd.bash.out %D%/completions/_fdd.out \
	%D%/completions/fdd.fish.out
EXTRA_DIST += $(COMPLETIONS)
# The units of instances, fdd@.service and fdd@.socket: the same but for the name.
%D%/fdd-at.service.out: %D%/fdd.service.out %D%/instance.sed
	$(AM_V_GEN)$(SED) -f $(srcdir)/%D%/instance.sed %D%/fdd.service.out >$@
%D%/fdd-at.socket.out: %D%/fdd.socket %D%/instance.sed
	@mkdir -p $(@D)
	$(AM_V_GEN)$(SED) -f $(srcdir)/%D%/instance.sed $(srcdir)/%D%/fdd.socket >$@
CLEANFILES += %D%/fdd.service.out %D%/fdd-textfile.service.out %D%/fdd-http.service.out \
	%D%/fdd-at.service.out %D%/fdd-at.socket.out
install-data-hook:
	cd $(DESTDIR)$(unitdir) && mv -f fdd.service.out fdd.service && \
		mv -f fdd-textfile.service.out fdd-textfile.service && \
		mv -f fdd-http.service.out fdd-http.service && \
		mv -f fdd-at.service.out fdd@.service && mv -f fdd-at.socket.out fdd@.socket
	cd $(DESTDIR)$(bashcompdir) && mv -f fdd.bash.out fdd && cp -f fdd fdctl && cp -f fdd fdbench
	cd $(DESTDIR)$(zshcompdir) && mv -f _fdd.out _fdd
	cd $(DESTDIR)$(fishcompdir) && mv -f fdd.fish.out fdd.fish && \
		cp -f fdd.fish fdctl.fish && cp -f fdd.fish fdbench.fish
uninstall-hook:
	rm -f $(DESTDIR)$(unitdir)/fdd.service $(DESTDIR)$(unitdir)/fdd-textfile.service \
		$(DESTDIR)$(unitdir)/fdd-http.service $(DESTDIR)$(unitdir)/fdd@.service $(DESTDIR)$(unitdir)/fdd@.socket \
		$(DESTDIR)$(zshcompdir)/_fdd
	for p in fdd fdctl fdbench; do \
		rm -f $(DESTDIR)$(bashcompdir)/$$p $(DESTDIR)$(fishcompdir)/$$p.fish; done
