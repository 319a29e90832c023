# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Makes fdd@.service and fdd@.socket of fdd.service and fdd.socket.
s/^Description=.*/&, instance %i/
s/fdd\.socket/fdd@%i.socket/g
s#^\(ExecStart=[^ ]*/fdd\)\( \|$\)#\1 --instance %i\2#
s#^\(\(Runtime\|State\|Cache\|Logs\)Directory\)=fdd$#\1=fdd/%i#
s#=/run/fdd/fdd.sock$#=/run/fdd/%i/fdd.sock#
# Locks of devices, for all instances: below their common folder.
/^ProtectSystem=strict$/a\
ReadWritePaths=-/run/fdd/devices
