# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""The limit of connections applies to each client address separately."""
import os
import socket
import sys

from wire import Reader, metric, request, wait_for

MOST = int(sys.argv[1])
PORT = int(os.environ["FDD_HTTP_PORT"])


def connect_from(address):
    s = socket.socket()
    s.settimeout(10)
    s.bind((address, 0))
    s.connect(("127.0.0.1", PORT))
    return s


def is_served(s):
    try:
        s.sendall(request("/version"))
        return Reader(s).answer()[0] == 200
    except OSError:
        return False


def main():
    many = [connect_from("127.0.0.3") for _ in range(MOST)]
    assert all(is_served(s) for s in many)
    refused = metric("fdd_http_refused_total")
    assert not any(is_served(connect_from("127.0.0.3")) for _ in range(5))
    assert metric("fdd_http_refused_total") == refused + 5
    others = [connect_from("127.0.0.4") for _ in range(MOST)]
    assert all(is_served(s) for s in others)
    many.pop().close()
    wait_for("its place is free", lambda: is_served(connect_from("127.0.0.3")))
    print(f"{MOST} connections of each address, the next is closed")


main()
