/* SPDX-FileCopyrightText: The fdd authors
 * SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of a model that FDP_OP_FILE sends.
 * FDP_FILE(id, name, text)
 */
FDP_FILE(TEMPLATE, "chat_template.jinja", "the chat template, if it has a file of its own")
FDP_FILE(TOKENIZER_CONFIG, "tokenizer_config.json", "special tokens and, in most models, the chat template")
FDP_FILE(GENERATION_CONFIG, "generation_config.json", "sampling defaults")
FDP_FILE(PARSER, "chat_parser.json", "how answers are parsed")
FDP_FILE(VOCABULARY, "vocabulary", "for each id from 0 on: u16 bytes, u8 kind (0 plain, 1 added, 3 special, 255 none), the bytes")
