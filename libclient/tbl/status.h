/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes on the wire and in libfdclient.
 * FDP_STATUS(name, value, class, retry, text)
 * class: SESSION (the session has ended), REQUEST (this request was refused),
 * RETRY (try again after retry_after_ms), ENDED (accepted, ended early),
 * NODE (the daemon or its device failed), LIBRARY (never on the wire).
 */
FDP_STATUS(OK,             0, OK,      0, "success")
FDP_STATUS(E_PROTO,       -1, SESSION, 0, "protocol violation, session closed")
FDP_STATUS(E_VERSION,     -2, SESSION, 0, "client and daemon share no protocol version or feature")
FDP_STATUS(E_PERM,        -3, SESSION, 0, "permission denied by the daemon's configuration")
FDP_STATUS(E_SLOW,        -4, SESSION, 0, "client did not read its completions in time")
FDP_STATUS(E_BAD_PARAM,  -10, REQUEST, 0, "a request parameter is malformed or out of range")
FDP_STATUS(E_TOO_LONG,   -11, REQUEST, 0, "prompt plus output does not fit the model's maximum length")
FDP_STATUS(E_BAD_TOKEN,  -12, REQUEST, 0, "a token id is outside the vocabulary")
FDP_STATUS(E_NO_MODEL,   -13, REQUEST, 0, "no such model, or the model has no tokenizer")
FDP_STATUS(E_NO_FILE,   -14, REQUEST, 0, "the model has no such file")
FDP_STATUS(E_BAD_TEXT,   -15, REQUEST, 0, "text is not valid UTF-8")
FDP_STATUS(E_UNSUPPORTED,-16, REQUEST, 0, "the request asks for something this daemon does not offer")
FDP_STATUS(E_QUEUE_FULL, -20, RETRY,   1, "the daemon's queue is full")
FDP_STATUS(E_LIMIT,      -21, RETRY,   1, "a limit of this client or user is reached")
FDP_STATUS(E_OVERLOAD,   -22, RETRY,   1, "the daemon is overloaded")
FDP_STATUS(E_LOADING,    -23, RETRY,   1, "the model is still loading")
FDP_STATUS(E_DRAINING,   -24, RETRY,   1, "the daemon is draining and takes no new requests")
FDP_STATUS(E_GPU_RESET,  -25, RETRY,   1, "the worker was restarted while the request ran")
FDP_STATUS(E_DEADLINE,   -30, ENDED,   0, "deadline passed")
FDP_STATUS(E_CANCELLED,  -31, ENDED,   0, "cancelled")
FDP_STATUS(E_GPU_LOST,   -40, NODE,    0, "the device is lost")
FDP_STATUS(E_INTERNAL,   -41, NODE,    0, "internal error, see the daemon's log")
FDP_STATUS(E_NUMERIC,    -42, NODE,    0, "the model produced NaN or infinity for this request")
FDP_STATUS(E_DISCONNECTED,-50,LIBRARY, 1, "the connection to the daemon is gone")
FDP_STATUS(E_TIMEOUT,    -51, LIBRARY, 1, "timed out")
FDP_STATUS(E_FORKED,     -52, LIBRARY, 0, "handle was opened before fork(); open a new one in the child")
FDP_STATUS(E_AGAIN,      -53, LIBRARY, 1, "nothing to read yet")
FDP_STATUS(E_NOMEM,      -54, LIBRARY, 1, "out of memory")
FDP_STATUS(E_INVAL,      -55, LIBRARY, 0, "invalid argument")
FDP_STATUS(E_CONNECT,    -56, LIBRARY, 1, "cannot connect to the daemon")
FDP_STATUS(E_FULL,       -57, LIBRARY, 1, "no room to submit: the session's queue, arena or number of requests is used up")
FDP_STATUS(E_UNREAD,     -58, LIBRARY, 0, "the program left more events unread than max_unread_bytes")
FDP_STATUS(E_ARENA,      -59, LIBRARY, 0, "the request is larger than the session's arena")
