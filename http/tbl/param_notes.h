/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/* Other servers' names of parameters, in the form of daemon/tbl/param_notes.h. */

PAR_NOTE(compat, metrics_port, "", WARN, "", "", "/metrics is on the same port")
PAR_NOTE(compat, api_key, "", OFF, "", "*",
    "keys.file holds keys as hashes; fdd-http(8) shows how to make them")
PAR_NOTE(compat, ssl_keyfile, "", OFF, "", "*", "TLS needs a proxy in front")
PAR_NOTE(compat, ssl_certfile, "", OFF, "", "*", "TLS needs a proxy in front")
PAR_NOTE(compat, allowed_origins, "", OFF, "[]", "*",
    "pages of other sites have no access; a proxy in front can allow it")
PAR_NOTE(compat, trust_request_chat_template, "", NEVER, "", "",
    "the model's template is used")
PAR_VALUE(chat, parser, "auto", "")
