# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Tokens from the fdd inference daemon, through libfdclient.

    import fdclient

    with fdclient.Client() as fdd:
        print(fdd.generate("In the beginning", max_new=64).text)
        for piece in fdd.stream("In the beginning", max_new=64):
            print(piece, end="", flush=True)

AsyncClient has these methods for asyncio, except generate_many(). doc/python.md describes
both, fdclient(3) the parameters, which have the names of struct fdc_params and struct
fdc_submit_opts.

Threads: any thread may use a Client. Only one thread at a time may read a stream; any
thread may cancel or close it. ctypes releases the GIL during a call of the library, so
a thread that waits for tokens delays no other. An AsyncClient belongs to its event loop.
fork(): in the child, every call on the parent's Client raises Forked, and close() only
releases memory and descriptors there. The child opens a Client of its own.
"""
from __future__ import annotations

import array
import asyncio
import ctypes
import difflib
import os
import threading
import time
import weakref
from collections import deque
from ctypes import (POINTER, byref, c_char, c_char_p, c_float, c_int, c_int32,
                    c_size_t, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p)
from typing import (TYPE_CHECKING, Any, AsyncIterator, Deque, Dict, FrozenSet, Iterable,
                    Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type,
                    TypedDict, Union)

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack

__version__ = "0.2.0"
__all__ = ["Accepted", "AsyncClient", "AsyncStream", "Cancelled", "Client",
           "ConnectFailed", "Disconnected", "Done", "Error", "Event", "Forked", "Ids",
           "Info", "Logprob", "Logprobs", "Params", "PromptIds", "PromptLogprobs",
           "PromptText", "Result", "Sample", "SampleEnd", "Special", "Stream", "Text",
           "TimedOut", "TokenText", "Usage", "default_socket"]

# ---- the C library ---------------------------------------------------------------------
# Names, values and layouts are those of fdclient.h: a structure's fields have the names
# they have in C, and a constant _F_TEXT is FDC_F_TEXT there. tests/sys/060-python.sh
# compares them with what the C compiler makes of the header.

_VERSION = 0x010000  # of the header that this module was written from
_U32 = 2**32 - 1
_UNSET, _UNSET64, _UNSET_F = _U32, 2**64 - 1, -3.4028234663852886e38
_LITERAL = 1 << 31
_F_TEXT, _F_PROMPT_IDS, _F_IGNORE_EOS, _F_PROMPT_TEXT = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_F_TOKEN_TEXT, _F_ALONE, _F_NO_SPECIAL = 1 << 4, 1 << 5, 1 << 6
_F_KEEP_SPECIAL, _F_KEEP_STOP, _F_PARSE_SPECIAL = 1 << 8, 1 << 9, 1 << 12
_S_DOWN, _S_DRAIN, _S_RECONNECTING = 1, 2, 4
_HAS_BIAS, _HAS_BAD_WORDS, _HAS_ALLOWED, _HAS_GRAMMAR = 1 << 6, 1 << 7, 1 << 8, 1 << 9
_HAS_BAD_IDS, _HAS_LOGPROB_IDS, _HAS_SPANS = 1 << 11, 1 << 12, 1 << 13
_HAS_REPETITION, _HAS_REASONING, _HAS_ADAPTER = 1 << 14, 1 << 15, 1 << 16
_HAS_FILE = 1 << 18
(_T_ACCEPTED, _T_PROMPT_IDS, _T_IDS, _T_TEXT, _T_LOGPROBS, _T_PROMPT_LOGPROBS,
 _T_CHOICE_END, _T_DONE, _T_ERROR) = range(1, 10)
_T_PROMPT_TEXT, _T_TOKEN_TEXT, _T_SPECIAL = 13, 14, 15
_E_TOO_LONG, _E_UNSUPPORTED, _E_CANCELLED = -11, -16, -31
_E_DISCONNECTED, _E_TIMEOUT, _E_FORKED, _E_AGAIN = -50, -51, -52, -53
_E_INVAL, _E_CONNECT, _E_FULL, _E_UNREAD = -55, -56, -57, -58


class _OpenError(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("os_error", c_int32), ("retry_after_ms", c_uint32),
                ("major", c_uint16), ("minor", c_uint16), ("text", c_char * 240)]


class _OpenOpts(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("spin_us", c_uint32), ("path", c_char_p),
                ("name", c_char_p), ("sq_slots", c_uint32), ("cq_slots", c_uint32),
                ("arena_bytes", c_uint32), ("connect_timeout_ms", c_uint32),
                ("max_unread_bytes", c_uint32), ("reconnect_ms", c_uint32),
                ("ret_error", POINTER(_OpenError))]


class _ModelInfo(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("vocab", c_uint32), ("max_model_len", c_uint32),
                ("bos_id", c_int32), ("has_tokenizer", c_uint32), ("n_eos", c_uint32),
                ("eos_ids", c_uint32 * 8), ("block_size", c_uint32),
                ("digest", c_uint8 * 32), ("name", c_char * 64), ("set", c_uint32),
                ("temperature", c_float), ("top_p", c_float), ("top_k", c_uint32),
                ("min_p", c_float), ("repetition_penalty", c_float),
                ("max_logprobs", c_uint32), ("max_n", c_uint32), ("max_stop", c_uint32),
                ("max_stop_len", c_uint32), ("max_stop_ids", c_uint32),
                ("max_bias", c_uint32), ("max_bad", c_uint32),
                ("max_logprob_ids", c_uint32), ("offers", c_uint64)]


class _Info(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("max_inflight", c_uint32), ("boot_id", c_uint64 * 2),
                ("session_id", c_uint64), ("features", c_uint64),
                ("max_request_bytes", c_uint32), ("major", c_uint16), ("minor", c_uint16),
                ("n_reconnect", c_uint32), ("rsv", c_uint32),
                ("model", POINTER(_ModelInfo))]


class _Bias(ctypes.Structure):
    _fields_ = [("id", c_uint32), ("bias", c_float)]


class _Span(ctypes.Structure):
    _fields_ = [("off", c_uint32), ("len", c_uint32)]


class _Repetition(ctypes.Structure):
    _fields_ = [("min_len", c_uint32), ("max_len", c_uint32), ("count", c_uint32),
                ("rsv", c_uint32)]


class _Reasoning(ctypes.Structure):
    _fields_ = [("max_tokens", c_uint32), ("open_id", c_uint32), ("close_id", c_uint32),
                ("rsv", c_uint32)]


class _Params(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("flags", c_uint32), ("max_new", c_uint32),
                ("min_new", c_uint32), ("temperature", c_float), ("top_p", c_float),
                ("min_p", c_float), ("top_k", c_uint32), ("presence_penalty", c_float),
                ("frequency_penalty", c_float), ("repetition_penalty", c_float),
                ("n", c_uint32), ("best_of", c_uint32), ("logprobs", c_int32),
                ("prompt_logprobs", c_int32), ("prompt_from", c_uint32),
                ("seed", c_uint64), ("stop", POINTER(c_char_p)),
                ("stop_len", POINTER(c_uint32)), ("stop_ids", POINTER(c_uint32)),
                ("prior_ids", POINTER(c_uint32)), ("allowed_ids", POINTER(c_uint32)),
                ("bias", POINTER(_Bias)), ("bad_words", POINTER(c_char_p)),
                ("bad_ids", POINTER(POINTER(c_uint32))),
                ("bad_ids_len", POINTER(c_uint32)), ("logprob_ids", POINTER(c_uint32)),
                ("spans", POINTER(_Span)), ("grammar", c_char_p), ("n_stop", c_uint32),
                ("n_stop_ids", c_uint32), ("n_prior", c_uint32), ("n_allowed", c_uint32),
                ("n_bias", c_uint32), ("n_bad_words", c_uint32), ("n_bad_ids", c_uint32),
                ("n_logprob_ids", c_uint32), ("n_spans", c_uint32),
                ("grammar_len", c_uint32), ("repetition", POINTER(_Repetition)),
                ("reasoning", POINTER(_Reasoning)), ("adapter", c_char_p)]


class _SubmitOpts(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("priority", c_int32), ("user", c_uint64),
                ("salt", c_uint8 * 16), ("ttl_queue_ms", c_uint32),
                ("ttl_total_ms", c_uint32), ("submit_timeout_ms", c_int32),
                ("stream_interval", c_uint32), ("exclusive_reader", c_uint32),
                ("no_resume", c_uint32), ("user_ptr", c_void_p),
                ("error_text", c_char_p), ("error_text_bytes", c_uint32),
                ("rsv", c_uint32)]


class _Submit(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("status", c_int32), ("text", c_char_p),
                ("ids", POINTER(c_uint32)), ("n_text", c_size_t), ("n_ids", c_size_t),
                ("params", POINTER(_Params)), ("opts", POINTER(_SubmitOpts)),
                ("req", c_void_p)]


class _AcceptedRecord(ctypes.Structure):
    _fields_ = [("prompt_len", c_uint32), ("cached_len", c_uint32), ("seed", c_uint64)]


class _LogprobRecord(ctypes.Structure):
    _fields_ = [("id", c_uint32), ("logprob", c_float)]


class _SpecialRecord(ctypes.Structure):
    _fields_ = [("id", c_uint32), ("n_text", c_uint32)]


class _ChoiceEndRecord(ctypes.Structure):
    _fields_ = [("finish", c_uint32), ("n_tokens", c_uint32), ("stop_id", c_int32),
                ("stop_str", c_int32), ("n_reasoning", c_uint32),
                ("mean_logprob", c_float)]


class _DoneRecord(ctypes.Structure):
    _fields_ = [("prompt_tokens", c_uint32), ("cached_tokens", c_uint32),
                ("output_tokens", c_uint32), ("n_preempted", c_uint32),
                ("t_submit", c_uint64), ("t_start", c_uint64), ("t_first", c_uint64),
                ("t_end", c_uint64)]


class _ErrorRecord(ctypes.Structure):
    _fields_ = [("code", c_int32), ("retry_after_ms", c_uint32), ("detail", c_uint32),
                ("arg", c_uint32), ("limit", c_uint32), ("item", c_uint32)]


class _Event(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("type", c_uint32), ("sample", c_uint32),
                ("position", c_uint32), ("n", c_uint32), ("more", c_uint32),
                ("data", c_void_p)]


# The name of each structure in C and its class here, for tests/sys/060-python.sh.
_STRUCTS: Dict[str, Type[ctypes.Structure]] = {
    "fdc_open_error": _OpenError, "fdc_open_opts": _OpenOpts,
    "fdc_model_info": _ModelInfo, "fdc_info": _Info, "fdc_bias": _Bias,
    "fdc_span": _Span, "fdc_repetition": _Repetition, "fdc_reasoning": _Reasoning,
    "fdc_params": _Params, "fdc_submit_opts": _SubmitOpts, "fdc_submit": _Submit,
    "fdc_accepted": _AcceptedRecord, "fdc_logprob": _LogprobRecord,
    "fdc_special": _SpecialRecord, "fdc_choice_end": _ChoiceEndRecord,
    "fdc_done": _DoneRecord, "fdc_error": _ErrorRecord, "fdc_event": _Event}

_FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {
    "fdc_version": (c_uint32, []),
    "fdc_version_string": (c_char_p, []),
    "fdc_open": (c_int, [POINTER(_OpenOpts), POINTER(c_void_p)]),
    "fdc_close": (None, [c_void_p]),
    "fdc_default_socket": (c_char_p, []),
    "fdc_info": (c_int, [c_void_p, POINTER(_Info), c_int]),
    "fdc_state": (c_int, [c_void_p, POINTER(c_uint32)]),
    "fdc_ping": (c_int, [c_void_p, c_int, POINTER(c_uint64), c_int]),
    "fdc_params_init_sized": (None, [POINTER(_Params), c_size_t]),
    "fdc_submit_many": (c_int, [c_void_p, POINTER(_Submit), c_size_t, c_int]),
    "fdc_submit_text": (c_int, [c_void_p, c_char_p, c_size_t, POINTER(_Params),
                                POINTER(_SubmitOpts), POINTER(c_void_p)]),
    "fdc_submit_ids": (c_int, [c_void_p, POINTER(c_uint32), c_size_t, POINTER(_Params),
                               POINTER(_SubmitOpts), POINTER(c_void_p)]),
    "fdc_cancel": (c_int, [c_void_p]),
    "fdc_req_free": (None, [c_void_p]),
    "fdc_req_tag": (c_uint64, [c_void_p]),
    "fdc_next": (c_int, [c_void_p, POINTER(_Event), c_int]),
    "fdc_event_text": (c_void_p, [POINTER(_Event), c_uint32, POINTER(c_size_t)]),
    "fdc_wait_any": (c_int, [c_void_p, POINTER(c_void_p), c_int]),
    "fdc_fd": (c_int, [c_void_p]),
    "fdc_dispatch": (c_int, [c_void_p]),
    "fdc_tokenize": (c_int, [c_void_p, c_char_p, c_size_t, c_uint32,
                             POINTER(POINTER(c_uint32)), POINTER(c_size_t), c_int]),
    "fdc_tokenize_spans": (c_int, [c_void_p, c_char_p, c_size_t, c_uint32,
                                   POINTER(_Span), c_size_t,
                                   POINTER(POINTER(c_uint32)), POINTER(c_size_t), c_int]),
    "fdc_detokenize": (c_int, [c_void_p, POINTER(c_uint32), c_size_t, c_uint32,
                               POINTER(c_void_p), POINTER(c_size_t), c_int]),
    "fdc_file": (c_int, [c_void_p, c_char_p, POINTER(c_void_p), POINTER(c_size_t),
                         c_int]),
    "fdc_free": (None, [c_void_p]),
    "fdc_strerror": (c_char_p, [c_int]),
    "fdc_status_name": (c_char_p, [c_int]),
    "fdc_detail_name": (c_char_p, [c_uint32]),
    "fdc_finish_name": (c_char_p, [c_uint32]),
    "fdc_error_text": (c_char_p, [POINTER(_ErrorRecord), c_char_p, c_size_t]),
    "fdc_is_retryable": (c_int, [c_int])}


def _load() -> Any:
    path = os.environ.get("FDD_LIBFDCLIENT")
    try:
        lib = ctypes.CDLL(path or "libfdclient.so.1")
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(lib, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as e:
        raise ImportError(
            f"fdclient needs libfdclient 1.0: {e}. Install the package libfdclient1, or "
            f"name its file in FDD_LIBFDCLIENT (now {path or 'not set'})") from e
    version = lib.fdc_version()
    if version >> 16 != _VERSION >> 16 or version < _VERSION:
        raise ImportError(
            f"{path or 'libfdclient.so.1'} is libfdclient "
            f"{lib.fdc_version_string().decode()}, and this fdclient needs "
            f"{_VERSION >> 16}.{_VERSION >> 8 & 255} or newer, below "
            f"{(_VERSION >> 16) + 1}.0: install library and module of one release")
    return lib


_lib = _load()


def default_socket() -> str:
    """The path of the daemon's socket, by the rule that fdctl follows."""
    return os.fsdecode(_lib.fdc_default_socket())


# ---- errors ----------------------------------------------------------------------------

# Parameters whose value and limit are the bits of a float in struct fdc_error.
_FLOAT_DETAILS = frozenset(("temperature", "top_p", "min_p", "presence_penalty",
                            "frequency_penalty", "repetition_penalty", "logit_bias"))


class Error(Exception):
    """A refusal by the daemon or the library, or the reason why a request ended early.

    The text is a sentence. Attributes: status (negative) and its name ("E_BAD_PARAM"),
    detail (the parameter, or None), value (the refused one) and limit (the bound, or
    None), retryable, retry_after_ms (0: unknown), os_error (the errno that caused
    E_CONNECT, or 0)."""
    status: int
    name: str
    detail: Optional[str] = None
    value: Union[int, float, None] = None
    limit: Union[int, float, None] = None
    retryable: bool = False
    retry_after_ms: int = 0
    os_error: int = 0

    def __init__(self, status: int, text: str = "") -> None:
        self.status = status
        self.name = _lib.fdc_status_name(status).decode()
        self.retryable = bool(_lib.fdc_is_retryable(status))
        super().__init__(text or f"{self.name}: {_lib.fdc_strerror(status).decode()}")

    def __reduce__(self) -> Any:
        return _restored, (self.status, str(self), dict(self.__dict__))


class TimedOut(Error, TimeoutError):
    """The timeout expired. generate() and generate_many() cancel their requests."""


class Cancelled(Error):
    """The request was cancelled, by this program or by the administrator."""


class ConnectFailed(Error, ConnectionError):
    """No daemon listens at this path, or this process may not use it."""


class Disconnected(Error, ConnectionError):
    """The connection to the daemon is lost. Open another Client, or use reconnect."""


class Forked(Error):
    """The Client belongs to the parent process. Open another one in this process."""


_CLASSES: Dict[int, Type[Error]] = {
    _E_TIMEOUT: TimedOut, _E_CANCELLED: Cancelled, _E_CONNECT: ConnectFailed,
    _E_DISCONNECTED: Disconnected, _E_FORKED: Forked}


def _error(status: int, text: str = "") -> Error:
    return _CLASSES.get(status, Error)(status, text)


def _restored(status: int, text: str, attributes: Dict[str, Any]) -> Error:
    e = _error(status, text)
    e.__dict__.update(attributes)
    return e


def _error_of(record: _ErrorRecord) -> Error:
    buf = ctypes.create_string_buffer(512)
    text = _lib.fdc_error_text(byref(record), buf, len(buf)).decode(errors="replace")
    e = _error(record.code, text)
    e.retry_after_ms = record.retry_after_ms
    if record.detail or record.code == _E_TOO_LONG:
        e.detail = _lib.fdc_detail_name(record.detail).decode() if record.detail else None
        e.value, e.limit = record.arg, record.limit or None
        if record.code == _E_UNSUPPORTED and record.limit == 0:
            e.value = None
        elif e.detail in _FLOAT_DETAILS:
            e.value = c_float.from_buffer_copy(c_uint32(record.arg)).value
            e.limit = c_float.from_buffer_copy(c_uint32(record.limit)).value
    return e


def _check(rc: int) -> int:
    if rc < 0:
        raise _error(rc)
    return rc


# ---- results of a request --------------------------------------------------------------

class Logprob(NamedTuple):
    id: int
    logprob: float
    text: Optional[bytes] = None  # with token_text; may be a piece of a character


class Usage(NamedTuple):
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    n_preempted: int
    queue_s: float  # from submission until it was first scheduled
    first_s: float  # until the first token was sent
    total_s: float  # until the end


class Accepted(NamedTuple):
    prompt_tokens: int
    cached_tokens: int
    seed: int


class PromptIds(NamedTuple):
    position: int
    ids: List[int]


class PromptText(NamedTuple):
    position: int
    text: str


class PromptLogprobs(NamedTuple):
    position: int
    tokens: List[Logprob]  # the prompt's token first, then the best alternatives


class Ids(NamedTuple):
    sample: int
    position: int
    ids: List[int]


class Text(NamedTuple):
    sample: int
    position: int  # of text in the sample, in bytes
    text: str


class Logprobs(NamedTuple):
    sample: int
    position: int
    tokens: List[Logprob]  # the sampled token, the best alternatives, then logprob_ids


class TokenText(NamedTuple):
    """Texts of the tokens of the previous event Logprobs or PromptLogprobs."""
    sample: int
    position: int
    texts: List[bytes]


class Special(NamedTuple):
    sample: int
    position: int
    id: int
    text: str


class SampleEnd(NamedTuple):
    sample: int
    finish: str  # "stop", "length", ...
    n_tokens: int
    stop_id: Optional[int]
    stop_string: Optional[int]  # index into the parameter stop
    n_reasoning: int
    mean_logprob: float


class Done(NamedTuple):
    usage: Usage


Event = Union[Accepted, PromptIds, PromptText, PromptLogprobs, Ids, Text, Logprobs,
              TokenText, Special, SampleEnd, Done]


class Sample:
    """One answer: text, ids, finish, logprobs (a list per token), specials."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.ids: List[int] = []
        self.logprobs: List[List[Logprob]] = []
        self.specials: List[Special] = []
        self.end: Optional[SampleEnd] = None
        self._pieces: List[str] = []

    @property
    def text(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""

    @property
    def finish(self) -> Optional[str]:
        """"stop", "length" and so on, or None if the sample has not ended."""
        return self.end.finish if self.end else None

    def __repr__(self) -> str:
        return f"Sample({self.index}, {self.text!r}, finish={self.finish!r})"


class Result:
    """The output of a request: its samples; text, ids, finish and logprobs of the first
    sample; usage and seed; the requested data of the prompt."""

    def __init__(self) -> None:
        self.samples: List[Sample] = []
        self.usage: Optional[Usage] = None  # None until the request is complete
        self.seed: Optional[int] = None
        self.prompt_ids: List[int] = []
        self.prompt_text = ""
        self.prompt_logprobs: Dict[int, List[Logprob]] = {}  # by position
        self._last: Optional[List[Logprob]] = None

    @property
    def text(self) -> str:
        return self.samples[0].text if self.samples else ""

    @property
    def ids(self) -> List[int]:
        return self.samples[0].ids if self.samples else []

    @property
    def finish(self) -> Optional[str]:
        return self.samples[0].finish if self.samples else None

    @property
    def logprobs(self) -> List[List[Logprob]]:
        return self.samples[0].logprobs if self.samples else []

    def __repr__(self) -> str:
        return f"Result({self.samples!r})"

    def _sample(self, index: int) -> Sample:
        while len(self.samples) <= index:
            self.samples.append(Sample(len(self.samples)))
        return self.samples[index]

    def _add(self, ev: Event) -> None:
        # In each branch no call follows a change: there a signal handler may raise.
        if isinstance(ev, Ids):
            self._sample(ev.sample).ids += ev.ids
        elif isinstance(ev, Text):
            self._sample(ev.sample)._pieces += [ev.text]
        elif isinstance(ev, Logprobs):
            sample, self._last = self._sample(ev.sample), list(ev.tokens)
            sample.logprobs += [self._last]
        elif isinstance(ev, PromptLogprobs):
            self._last = self.prompt_logprobs[ev.position] = list(ev.tokens)
        elif isinstance(ev, TokenText):
            if self._last is not None:
                self._last[:] = [t._replace(text=b) for t, b in zip(self._last, ev.texts)]
        elif isinstance(ev, Special):
            sample = self._sample(ev.sample)
            sample.ids += [ev.id]
            sample.specials += [ev]
        elif isinstance(ev, SampleEnd):
            self._sample(ev.sample).end = ev
        elif isinstance(ev, Accepted):
            self.seed = ev.seed
        elif isinstance(ev, PromptIds):
            self.prompt_ids += ev.ids
        elif isinstance(ev, PromptText):
            self.prompt_text += ev.text
        else:
            self.usage = ev.usage


def _array(data: int, n: int, kind: Any = c_uint32) -> Any:
    return (kind * n).from_address(data)[:]


def _bytes(ev: _Event, i: int) -> bytes:
    n = c_size_t()
    p = _lib.fdc_event_text(byref(ev), i, byref(n))
    return ctypes.string_at(p, n.value) if p else b""


def _text(ev: _Event) -> str:
    return ctypes.string_at(ev.data, ev.n).decode(errors="replace")


def _tokens(ev: _Event) -> List[Logprob]:
    return [Logprob(t.id, t.logprob) for t in _array(ev.data, ev.n, _LogprobRecord)]


def _done(ev: _Event) -> Done:
    d = _DoneRecord.from_address(ev.data)
    since = [max(0, t - d.t_submit) / 1e9 if t else 0.0
             for t in (d.t_start, d.t_first, d.t_end)]
    return Done(Usage(d.prompt_tokens, d.cached_tokens, d.output_tokens, d.n_preempted,
                      *since))


def _sample_end(ev: _Event) -> SampleEnd:
    e = _ChoiceEndRecord.from_address(ev.data)
    return SampleEnd(ev.sample, _lib.fdc_finish_name(e.finish).decode(), e.n_tokens,
                     e.stop_id if e.stop_id >= 0 else None,
                     e.stop_str if e.stop_str >= 0 else None, e.n_reasoning,
                     e.mean_logprob)


def _accepted(ev: _Event) -> Accepted:
    a = _AcceptedRecord.from_address(ev.data)
    return Accepted(a.prompt_len, a.cached_len, a.seed)


def _special(ev: _Event) -> Special:
    return Special(ev.sample, ev.position, _SpecialRecord.from_address(ev.data).id,
                   _bytes(ev, 0).decode(errors="replace"))


_DECODERS: Dict[int, Any] = {
    _T_ACCEPTED: _accepted,
    _T_PROMPT_IDS: lambda ev: PromptIds(ev.position, _array(ev.data, ev.n)),
    _T_IDS: lambda ev: Ids(ev.sample, ev.position, _array(ev.data, ev.n)),
    _T_TEXT: lambda ev: Text(ev.sample, ev.position, _text(ev)),
    _T_LOGPROBS: lambda ev: Logprobs(ev.sample, ev.position, _tokens(ev)),
    _T_PROMPT_LOGPROBS: lambda ev: PromptLogprobs(ev.position, _tokens(ev)),
    _T_CHOICE_END: _sample_end,
    _T_DONE: _done,
    _T_ERROR: lambda ev: _error_of(_ErrorRecord.from_address(ev.data)),
    _T_PROMPT_TEXT: lambda ev: PromptText(ev.position, _text(ev)),
    _T_TOKEN_TEXT: lambda ev: TokenText(ev.sample, ev.position,
                                        [_bytes(ev, i) for i in range(ev.n)]),
    _T_SPECIAL: _special}

# ---- parameters ------------------------------------------------------------------------

class Params(TypedDict, total=False):
    """Keyword arguments of generate(), generate_many() and stream(), named as in
    fdclient(3). None means the same as leaving the argument out."""
    # what to generate and how
    max_new: Optional[int]
    min_new: Optional[int]
    temperature: Optional[float]
    top_p: Optional[float]
    min_p: Optional[float]
    top_k: Optional[int]
    presence_penalty: Optional[float]
    frequency_penalty: Optional[float]
    repetition_penalty: Optional[float]
    n: Optional[int]
    best_of: Optional[int]
    logprobs: Optional[int]
    prompt_logprobs: Optional[int]
    prompt_from: Optional[int]
    seed: Optional[int]
    stop: Union[str, Sequence[str], None]
    stop_ids: Optional[Sequence[int]]
    prior_ids: Optional[Sequence[int]]
    allowed_ids: Optional[Sequence[int]]
    bias: Union[Mapping[int, float], Sequence[Tuple[int, float]], None]
    bad_words: Union[str, Sequence[str], None]
    bad_ids: Optional[Sequence[Sequence[int]]]
    logprob_ids: Optional[Sequence[int]]
    spans: Optional[Sequence[Tuple[int, int]]]  # (offset, bytes) of the prompt in UTF-8
    grammar: Optional[bytes]
    repetition: Optional[Tuple[int, int, int]]  # min_len, max_len, count
    reasoning: Optional[Tuple[int, int, int]]  # max_tokens, open_id, close_id
    adapter: Optional[str]
    # flags, FDC_F_* in C
    text: Optional[bool]
    prompt_ids: Optional[bool]
    prompt_text: Optional[bool]
    token_text: Optional[bool]
    ignore_eos: Optional[bool]
    alone: Optional[bool]
    no_special: Optional[bool]
    keep_special: Optional[bool]
    keep_stop: Optional[bool]
    parse_special: Optional[bool]
    # handling of the request
    priority: Optional[int]
    user: Optional[int]
    salt: Optional[bytes]
    ttl_queue_ms: Optional[int]
    ttl_total_ms: Optional[int]
    stream_interval: Optional[int]
    no_resume: Optional[bool]


_FLAGS = {"text": _F_TEXT, "prompt_ids": _F_PROMPT_IDS, "prompt_text": _F_PROMPT_TEXT,
          "token_text": _F_TOKEN_TEXT, "ignore_eos": _F_IGNORE_EOS, "alone": _F_ALONE,
          "no_special": _F_NO_SPECIAL, "keep_special": _F_KEEP_SPECIAL,
          "keep_stop": _F_KEEP_STOP, "parse_special": _F_PARSE_SPECIAL}
# The ranges of the C fields. The daemon refuses values outside of its own limits.
_INTS = {"max_new": (0, _UNSET - 1), "min_new": (0, _U32), "top_k": (0, _UNSET - 1),
         "n": (0, _U32), "best_of": (0, _U32), "logprobs": (0, 2**31 - 1),
         "prompt_logprobs": (0, 2**31 - 1), "prompt_from": (0, _U32),
         "seed": (0, _UNSET64 - 1)}
_OPT_INTS = {"priority": (-2**31, 2**31 - 1), "user": (0, 2**64 - 1),
             "ttl_queue_ms": (0, _U32), "ttl_total_ms": (0, _U32),
             "stream_interval": (0, _U32), "no_resume": (0, 1)}
_FLOATS = frozenset(("temperature", "top_p", "min_p", "presence_penalty",
                     "frequency_penalty", "repetition_penalty"))
_IDS = {"stop_ids": "n_stop_ids", "prior_ids": "n_prior", "allowed_ids": "n_allowed",
        "logprob_ids": "n_logprob_ids"}
_RECORDS: Dict[str, Tuple[str, Type[ctypes.Structure]]] = {
    "repetition": ("(min_len, max_len, count)", _Repetition),
    "reasoning": ("(max_tokens, open_id, close_id)", _Reasoning)}


def _integer(name: str, value: Any, least: int, most: int) -> int:
    try:
        i = value.__index__()
    except AttributeError:
        raise TypeError(f"{name} is {value!r}: it must be an integer") from None
    if not least <= i <= most:
        raise ValueError(f"{name} is {i}: it must be from {least} to {most}")
    return int(i)


def _number(name: str, value: Any) -> float:
    try:
        f = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {value!r}: it must be a number") from None
    except OverflowError:
        raise ValueError(f"{name} is more than a float can hold") from None
    if c_float(f).value == _UNSET_F:
        raise ValueError(f"{name} is {value!r}, which means \"not set\": leave it out")
    return f


def _span_array(spans: Any) -> Any:
    rows = [_Span(*(_integer("spans", v, 0, _U32) for v in row)) for row in spans]
    return (_Span * len(rows))(*rows)


def _id_array(name: str, ids: Any) -> Any:
    if isinstance(ids, (str, bytes, bytearray)):
        raise TypeError(f"{name} is {type(ids).__name__}: it must be a list of token ids")
    try:
        ids = ids if isinstance(ids, (list, tuple, array.array)) else list(ids)
        a = array.array("I", ids)
    except OverflowError:
        bad = next(i for i in ids if not 0 <= i <= _U32)
        raise ValueError(f"{name} holds {bad}: ids are from 0 to {_U32}") from None
    except TypeError:
        raise TypeError(f"{name} must be a list of token ids, all integers") from None
    return (c_uint32 * len(a)).from_buffer(a) if a else (c_uint32 * 0)()


def _strings(name: str, value: Any) -> List[bytes]:
    values = [value] if isinstance(value, str) else list(value)
    for v in values:
        if not isinstance(v, str):
            raise TypeError(f"{name} holds {v!r}: it must be a string or several")
    return [v.encode() for v in values]


def _c_string(name: str, value: str) -> bytes:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}: it must be a string")
    b = value.encode()
    if b"\0" in b:
        raise ValueError(f"{name} is {value!r}: a NUL character cannot be in it")
    return b


class _Call:
    """The parameters of a request as C structures of the library."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.begun = time.monotonic()
        self.p, self.o = _Params(), _SubmitOpts()
        self.keep: List[Any] = []  # objects to which the C pointers point
        self.error = ctypes.create_string_buffer(512)
        _lib.fdc_params_init_sized(byref(self.p), ctypes.sizeof(self.p))
        self.o.size = ctypes.sizeof(self.o)
        self.o.error_text = ctypes.cast(self.error, c_char_p)
        self.o.error_text_bytes = len(self.error)
        for name, value in params.items():
            if name not in Params.__annotations__:
                near = difflib.get_close_matches(name, Params.__annotations__, 1)
                raise TypeError(f"there is no parameter {name!r}" +
                                (f": is it {near[0]!r}?" if near else
                                 "; fdclient.Params has their names"))
            if value is not None:
                self._set(name, value)

    def _set(self, name: str, value: Any) -> None:
        p = self.p
        if name in _FLAGS:
            p.flags = p.flags | _FLAGS[name] if value else p.flags & ~_FLAGS[name]
        elif name in _INTS:
            setattr(p, name, _integer(name, value, *_INTS[name]))
        elif name in _OPT_INTS:
            setattr(self.o, name, _integer(name, value, *_OPT_INTS[name]))
        elif name in _FLOATS:
            setattr(p, name, _number(name, value))
        elif name in _IDS:
            self._list(name, _id_array(name, value), _IDS[name], c_uint32)
        elif name in _RECORDS:
            self._record(name, value, *_RECORDS[name])
        elif name == "salt":
            if not isinstance(value, bytes) or len(value) > 16:
                raise ValueError(f"salt is {value!r}: it must be 16 bytes at most")
            self.o.salt[:] = value.ljust(16, b"\0")
        elif name == "adapter":
            p.adapter = _c_string(name, value)
        elif name == "grammar":
            self.keep.append(value)
            p.grammar, p.grammar_len = value, len(value)
        else:
            getattr(self, "_set_" + name)(value)

    def _list(self, name: str, items: Any, count: str, kind: Any) -> None:
        self.keep.append(items)
        setattr(self.p, name, ctypes.cast(items, POINTER(kind)))
        setattr(self.p, count, len(items))

    def _record(self, name: str, value: Any, form: str, kind: Any) -> None:
        if not isinstance(value, (tuple, list)) or len(value) != 3:
            raise TypeError(f"{name} is {value!r}: it must be {form}")
        record = kind(*(_integer(f"{name}, one of {form},", v, 0, _U32) for v in value))
        self.keep.append(record)
        setattr(self.p, name, ctypes.pointer(record))

    def _set_stop(self, value: Any) -> None:
        strings = _strings("stop", value)
        self._list("stop", (c_char_p * len(strings))(*strings), "n_stop", c_char_p)
        self._list("stop_len", (c_uint32 * len(strings))(*map(len, strings)), "n_stop",
                   c_uint32)
        self.keep.append(strings)

    def _set_bad_words(self, value: Any) -> None:
        texts = [_c_string("bad_words", w.decode()) for w in _strings("bad_words", value)]
        self._list("bad_words", (c_char_p * len(texts))(*texts), "n_bad_words", c_char_p)
        self.keep.append(texts)

    def _set_bad_ids(self, value: Any) -> None:
        rows = [_id_array("bad_ids", row) for row in value]
        pointers = (POINTER(c_uint32) * len(rows))(
            *(ctypes.cast(row, POINTER(c_uint32)) for row in rows))
        self.keep.append(rows)
        self._list("bad_ids", pointers, "n_bad_ids", POINTER(c_uint32))
        self._list("bad_ids_len", (c_uint32 * len(rows))(*map(len, rows)), "n_bad_ids",
                   c_uint32)

    def _set_bias(self, value: Any) -> None:
        rows = list(value.items() if isinstance(value, Mapping) else value)
        checked = [_Bias(_integer("an id of bias", i, 0, _U32), _number("bias", b))
                   for i, b in rows]
        self._list("bias", (_Bias * len(rows))(*checked), "n_bias", _Bias)

    def _set_spans(self, value: Any) -> None:
        rows = _span_array(value)
        self._list("spans", rows, "n_spans", _Span)

    def failed(self, rc: int) -> Error:
        """The error of a submit call that returned rc."""
        return _error(rc, self.error.value.decode(errors="replace"))


class _Prompt:
    def __init__(self, prompt: Union[str, Sequence[int]]) -> None:
        self.text = prompt.encode() if isinstance(prompt, str) else None
        self.ids: Any = None if self.text is not None else _id_array("the prompt", prompt)

    def submit(self, session: int, call: _Call, timeout_ms: int, req: c_void_p) -> int:
        call.o.submit_timeout_ms = timeout_ms
        if self.text is not None:
            return int(_lib.fdc_submit_text(session, self.text, len(self.text),
                                            byref(call.p), byref(call.o), byref(req)))
        return int(_lib.fdc_submit_ids(session, self.ids, len(self.ids), byref(call.p),
                                       byref(call.o), byref(req)))

    def fill(self, sub: _Submit, call: _Call) -> None:
        """Fills sub, which is valid as long as self and call exist."""
        sub.size = ctypes.sizeof(sub)
        if self.text is not None:
            sub.text, sub.n_text = self.text, len(self.text)
        else:
            sub.ids, sub.n_ids = ctypes.cast(self.ids, POINTER(c_uint32)), len(self.ids)
        sub.params, sub.opts = ctypes.pointer(call.p), ctypes.pointer(call.o)


# ---- sessions and requests -------------------------------------------------------------
# The library must not be called with a handle that is being freed. Each call is counted
# in its session and its request; close() marks them, and the last call to return frees.

_SLICE_MS = 250  # longest call: Python handles signals (Ctrl-C) only between calls


def _deadline(timeout: Optional[float]) -> Optional[float]:
    return None if timeout is None else time.monotonic() + _seconds("timeout", timeout)


def _seconds(name: str, value: Any) -> float:
    """A number of seconds, which may be infinite."""
    f = _number(name, value)
    if f != f:
        raise ValueError(f"{name} is {value!r}: it must be a number of seconds")
    return f


def _ms_field(name: str, value: Any, least: int) -> int:
    """Milliseconds for a field where 2**32 - 1 means no limit; rounded up, since 0 has
    another meaning there."""
    if value is True or value is None or _seconds(name, value) == float("inf"):
        return _U32
    ms = -int(-float(value) * 1000 // 1)
    return _integer(f"{name} (ms)", ms, least, _U32 - 1)


def _slice(deadline: Optional[float]) -> int:
    """Milliseconds that a call may wait; 0: the deadline has passed."""
    if deadline is None:
        return _SLICE_MS
    left = (deadline - time.monotonic()) * 1000 + 0.999
    return int(max(0, min(left, _SLICE_MS)))


def _ms(timeout: Optional[float]) -> int:
    """Milliseconds for calls that wait for one answer; -1: no limit."""
    if timeout is None:
        return -1
    return int(max(0, min(_seconds("timeout", timeout) * 1000 + 0.999, 2**31 - 1)))


def _answered(rc: int) -> None:
    """Checks the status of such a call. With a timeout of 0 the library reports E_AGAIN
    or E_FULL instead of E_TIMEOUT."""
    _check(_E_TIMEOUT if rc in (_E_AGAIN, _E_FULL) else rc)


class Info(NamedTuple):
    """The negotiated values of the session, and the model. While the model is loading,
    its name is "" and the fields from vocab on are 0."""
    max_inflight: int
    max_request_bytes: int
    session_id: int
    boot_id: Tuple[int, int]
    protocol: Tuple[int, int]
    n_reconnect: int
    model: str
    digest: str
    vocab: int
    max_model_len: int
    bos_id: Optional[int]
    eos_ids: List[int]
    has_tokenizer: bool
    defaults: Dict[str, float]  # values of parameters that are not set
    limits: Dict[str, int]  # of a request: max_logprobs, max_n, max_stop, ...
    offers: FrozenSet[str]  # supported optional parameters, and "file"


_LIMITS = ("max_logprobs", "max_n", "max_stop", "max_stop_len", "max_stop_ids",
           "max_bias", "max_bad", "max_logprob_ids")
_OFFERS = {"bias": _HAS_BIAS, "bad_words": _HAS_BAD_WORDS, "allowed_ids": _HAS_ALLOWED,
           "grammar": _HAS_GRAMMAR, "bad_ids": _HAS_BAD_IDS,
           "logprob_ids": _HAS_LOGPROB_IDS, "spans": _HAS_SPANS,
           "repetition": _HAS_REPETITION, "reasoning": _HAS_REASONING,
           "adapter": _HAS_ADAPTER, "file": _HAS_FILE}


class _Session:
    def __init__(self, path: Union[str, "os.PathLike[str]", None], name: Optional[str],
                 reconnect: Union[bool, float], connect_timeout: float,
                 max_unread_bytes: int) -> None:
        self._mu = threading.RLock()  # reentrant: __del__ may come at any point
        self._dialing = threading.Lock()
        self._users = 0
        self._closed = False
        self._h: Optional[int] = None
        self._open: Dict[int, "weakref.ref[_Request]"] = {}
        self._path = None if path is None else os.fsencode(path)
        if self._path is not None and b"\0" in self._path:
            raise ValueError(f"path is {path!r}: a NUL character cannot be in it")
        self._name = None if name is None else _c_string("name", name)
        self._reconnect_ms = _ms_field("reconnect", reconnect or 0, 0)
        self._connect_ms = _ms_field("connect_timeout", connect_timeout, 1)
        self._max_unread = _integer("max_unread_bytes", max_unread_bytes, 0, _U32)
        _sessions.add(self)

    def _connect(self) -> None:
        """Opens the session, unless another thread has opened it meanwhile."""
        with self._dialing:
            if self._h is None:
                self._dial()

    def _dial(self) -> None:
        failure, handle = _OpenError(), c_void_p()
        failure.size = ctypes.sizeof(failure)
        opts = _OpenOpts(size=ctypes.sizeof(_OpenOpts), path=self._path, name=self._name,
                         connect_timeout_ms=self._connect_ms,
                         max_unread_bytes=self._max_unread,
                         reconnect_ms=self._reconnect_ms,
                         ret_error=ctypes.pointer(failure))
        rc = _lib.fdc_open(byref(opts), byref(handle))
        if rc < 0:
            e = _error(rc, failure.text.decode(errors="replace"))
            e.os_error, e.retry_after_ms = failure.os_error, failure.retry_after_ms
            raise e
        with self._mu:
            if not self._closed:
                self._h = handle.value
                return
        _lib.fdc_close(handle)  # close() came first
        raise _error(_E_INVAL, "the client is closed")

    def _enter(self) -> int:
        with self._mu:
            if self._closed:
                raise _error(_E_INVAL, "the client is closed")
            if self._h is None:
                raise _error(_E_INVAL, "the AsyncClient is not open: use async with, or "
                             "await open()")
            self._users += 1
            return self._h

    def _leave(self) -> None:
        with self._mu:
            self._users -= 1
            last = self._closed and self._users == 0
        if last:
            self._free()

    def _free(self) -> None:
        with self._mu:
            h, self._h = self._h, None
            self._open.clear()
        if h is not None:
            _lib.fdc_close(h)

    def _close(self) -> None:
        with self._mu:
            if self._closed:
                return
            self._closed = True
            busy = self._users > 0
            if busy:  # readers see their requests end, and return
                for handle in list(self._open):  # a copy: __del__ may run meanwhile
                    _lib.fdc_cancel(handle)
        if not busy:
            self._free()

    def __del__(self) -> None:
        if "_max_unread" in self.__dict__:
            self._close()

    # Calls that wait for one answer.

    def _tokenize(self, text: str, literal: bool, special: bool,
                  spans: Optional[Sequence[Tuple[int, int]]],
                  timeout: Optional[float]) -> List[int]:
        b, ids, n = text.encode(), POINTER(c_uint32)(), c_size_t()
        flags = (_LITERAL if literal else 0) | (0 if special else _F_NO_SPECIAL)
        rows = _span_array(spans or ())
        h = self._enter()
        try:
            _answered(_lib.fdc_tokenize_spans(h, b, len(b), flags, rows, len(rows),
                                              byref(ids), byref(n), _ms(timeout)))
            result = ids[:n.value]
            _lib.fdc_free(ids)
            return result
        finally:
            self._leave()

    def _detokenize(self, ids: Sequence[int], special: bool,
                    timeout: Optional[float]) -> str:
        a, text, n = _id_array("ids", ids), c_void_p(), c_size_t()
        h = self._enter()
        try:
            _answered(_lib.fdc_detokenize(h, a, len(a), _F_KEEP_SPECIAL if special else 0,
                                          byref(text), byref(n), _ms(timeout)))
            result = ctypes.string_at(text, n.value).decode(errors="replace")
            _lib.fdc_free(text)
            return result
        finally:
            self._leave()

    def _file(self, name: str, timeout: Optional[float]) -> bytes:
        data, n = c_void_p(), c_size_t()
        h = self._enter()
        try:
            _answered(_lib.fdc_file(h, _c_string("name", name), byref(data), byref(n),
                                    _ms(timeout)))
            result = ctypes.string_at(data, n.value)
            _lib.fdc_free(data)
            return result
        finally:
            self._leave()

    def _ping(self, deep: bool, timeout: Optional[float]) -> float:
        ns = c_uint64()
        h = self._enter()
        try:
            _answered(_lib.fdc_ping(h, 1 if deep else 0, byref(ns), _ms(timeout)))
        finally:
            self._leave()
        return ns.value / 1e9

    def _info(self, timeout: Optional[float]) -> Info:
        m = _ModelInfo(size=ctypes.sizeof(_ModelInfo))
        i = _Info(size=ctypes.sizeof(_Info), model=ctypes.pointer(m))
        h = self._enter()
        try:
            _answered(_lib.fdc_info(h, byref(i), _ms(timeout)))
        finally:
            self._leave()
        defaults = {k: getattr(m, k) for k in
                    ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")}
        return Info(i.max_inflight, i.max_request_bytes, i.session_id, tuple(i.boot_id),
                    (i.major, i.minor), i.n_reconnect, m.name.decode(errors="replace"),
                    bytes(m.digest).hex(), m.vocab, m.max_model_len,
                    m.bos_id if m.vocab and m.bos_id >= 0 else None,
                    list(m.eos_ids[:m.n_eos]), bool(m.has_tokenizer), defaults,
                    {k: getattr(m, k) for k in _LIMITS},
                    frozenset(k for k, bit in _OFFERS.items() if m.offers & bit))

    def state(self) -> List[str]:
        """Problems: "down" (the worker is down; requests wait or are refused), "draining"
        (no new requests are accepted), "reconnecting"; [] if none. Raises the reason
        once the session is over."""
        flags = c_uint32()
        h = self._enter()
        try:
            _check(_lib.fdc_state(h, byref(flags)))
        finally:
            self._leave()
        return [name for bit, name in ((_S_DOWN, "down"), (_S_DRAIN, "draining"),
                                       (_S_RECONNECTING, "reconnecting"))
                if flags.value & bit]


class _Request:
    """A request and its handle in the library, while it is open."""

    def __init__(self, session: _Session) -> None:
        self._session = session
        self._h: Optional[int] = None
        self._users = 0
        self._closing = False
        self._failure: Optional[Tuple[Any, ...]] = None  # the error that it ended with
        self.result = Result()  # what has been read so far

    def _fail(self, error: Error) -> Error:
        """Stores error, so that later reads raise it too; returns it to be raised now."""
        self._failure = error.__reduce__()[1]
        return error

    def _at_end(self) -> None:
        """Raises the error of a failed request: its answer is incomplete."""
        if self._failure is not None:
            raise _restored(*self._failure)

    def _attach(self, handle: int) -> None:
        with self._session._mu:
            self._h = handle
            self._session._open[handle] = weakref.ref(self)

    def _hold(self) -> int:
        s = self._session
        with s._mu:
            if self._h is None or self._closing or s._closed:
                raise _error(_E_INVAL, "the client or the stream is closed")
            self._users += 1
            s._users += 1
            return self._h

    def _release(self) -> None:
        s, h = self._session, None
        with s._mu:
            self._users -= 1
            if self._closing and self._users == 0 and self._h is not None:
                h, self._h = self._h, None
                s._open.pop(h, None)
        if h is not None:
            _lib.fdc_req_free(h)
        s._leave()

    def cancel(self) -> None:
        """Asks the daemon to end the request. Events under way may still arrive, then
        reading raises Cancelled. Any thread may call it."""
        try:
            h = self._hold()
        except Error:
            return
        try:
            _lib.fdc_cancel(h)
        finally:
            self._release()

    def close(self) -> None:
        """Cancels the request if it has not ended, and frees it, from any thread."""
        s = self._session
        with s._mu:
            h = self._h
            if h is None or self._closing:
                return
            if s._closed:  # fdc_close() has freed it, or will
                self._h = None
                return
            if self._users:
                self._closing = True
                _lib.fdc_cancel(h)
                return
            self._h = None
            s._open.pop(h, None)
            s._users += 1
        _lib.fdc_req_free(h)
        s._leave()

    def __del__(self) -> None:
        if "_closing" in self.__dict__:
            self.close()

    @property
    def tag(self) -> int:
        """The request's number in fdctl requests; 0 if it is not open."""
        try:
            h = self._hold()
        except Error:
            return 0
        try:
            return int(_lib.fdc_req_tag(h))
        finally:
            self._release()


_sessions: "weakref.WeakSet[_Session]" = weakref.WeakSet()


def _forked() -> None:
    """Runs in the child, which has no other thread that could return from its call."""
    for s in list(_sessions):
        s._mu, s._dialing = threading.RLock(), threading.Lock()
        s._users = 0
        if isinstance(s, AsyncClient):
            s._fd = -1  # the child's copy of the loop waits on the parent's epoll set
        for ref in list(s._open.values()):
            request = ref()
            if request is not None:
                request._users = 0


os.register_at_fork(after_in_child=_forked)

# ---- without asyncio -------------------------------------------------------------------

class Stream(_Request):
    """The output of a request as it arrives: iterate over the pieces of text of its first
    sample, or over events(). The end of a with statement, close() and dropping the last
    reference cancel the request. result has everything read so far."""

    _session: Client

    def __init__(self, client: Client, timeout: Optional[float]) -> None:
        super().__init__(client)
        self._ev = _Event(size=ctypes.sizeof(_Event))
        self._timeout = timeout
        self._over = False

    def _read(self, deadline: Optional[float]) -> Optional[Event]:
        while not self._over:
            h = self._hold()
            try:
                # A signal handler that raises runs as fdc_next() returns: an event that
                # is not in the result yet stays in _ev for the next read.
                rc = 1 if self._ev.type else _lib.fdc_next(h, byref(self._ev),
                                                           _slice(deadline))
                got = _decode(self._ev) if rc == 1 else None
            finally:
                self._release()
            if rc == 0:
                break
            if rc < 0 and rc not in (_E_AGAIN, _E_TIMEOUT):
                raise _error(rc)
            if rc < 0 and _slice(deadline) == 0:
                raise _error(_E_TIMEOUT)
            if isinstance(got, Error):
                self._fail(got)
            elif got is not None:
                self.result._add(got)
            self._ev.type = 0
            if isinstance(got, (Done, Error)):
                self._over = True
                self.close()
            if isinstance(got, Error):
                raise got
            if got is not None:
                return got
        self._at_end()
        return None

    def read(self) -> Result:
        """Reads to the end and returns the result."""
        deadline = _deadline(self._timeout)
        while self._read(deadline) is not None:
            pass
        return self.result

    def events(self) -> Iterator[Event]:
        """Yields all events up to Done. Raises the error if the request ends with one."""
        while True:
            ev = self._read(_deadline(self._timeout))
            if ev is None:
                return
            yield ev

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> str:
        while True:
            ev = self._read(_deadline(self._timeout))
            if ev is None:
                raise StopIteration
            piece = _piece(ev)
            if piece:
                return piece

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()


def _decode(ev: _Event) -> Union[Event, Error, None]:
    decoder = _DECODERS.get(ev.type)  # None: an event type of a newer library
    result: Union[Event, Error, None] = decoder(ev) if decoder else None
    return result


def _piece(ev: Event) -> str:
    if isinstance(ev, PromptText) or isinstance(ev, Text) and ev.sample == 0:
        return ev.text
    return ""


class Client(_Session):
    """A session with the daemon; one per process is enough.

    path: the daemon's socket (default_socket()). name: shown by fdctl clients.
    reconnect: after a restart of the daemon, try this many seconds (True: for ever) to
    open the session again and to go on with its requests. Timeouts are in seconds, None
    means no limit. max_unread_bytes: limit per request; 0 means 16 MiB."""

    def __init__(self, path: Union[str, "os.PathLike[str]", None] = None, *,
                 name: Optional[str] = None, reconnect: Union[bool, float] = False,
                 connect_timeout: float = 5.0, max_unread_bytes: int = 0) -> None:
        super().__init__(path, name, reconnect, connect_timeout, max_unread_bytes)
        self._connect()

    def generate(self, prompt: Union[str, Sequence[int]], *,
                 timeout: Optional[float] = None, **params: Unpack[Params]) -> Result:
        """Returns the answer to a text or to token ids. timeout: for the whole call."""
        deadline = _deadline(timeout)
        stream = self._submit(prompt, None, deadline, params)
        try:
            while stream._read(deadline) is not None:
                pass
            return stream.result
        finally:
            stream.close()

    def generate_many(self, prompts: Iterable[Union[str, Sequence[int]]], *,
                      timeout: Optional[float] = None,
                      **params: Unpack[Params]) -> List[Result]:
        """Returns the answers to several prompts, which the daemon computes together. The
        first error ends all of them."""
        deadline, call = _deadline(timeout), _Call(params)
        todo = deque(_Prompt(p) for p in prompts)
        streams: Deque[Stream] = deque()
        results: List[Result] = []
        try:
            while todo or streams:
                if todo:
                    self._submit_many(todo, call, streams, deadline)
                while streams[0]._read(deadline) is not None:
                    pass
                results.append(streams.popleft().result)
            return results
        finally:
            for stream in streams:
                stream.close()

    def stream(self, prompt: Union[str, Sequence[int]], *,
               timeout: Optional[float] = None, **params: Unpack[Params]) -> Stream:
        """The answer as a stream. timeout: for room in the queue, and for each piece."""
        return self._submit(prompt, timeout, _deadline(timeout), params)

    def _submit(self, prompt: Union[str, Sequence[int]], timeout: Optional[float],
                deadline: Optional[float], params: Mapping[str, Any]) -> Stream:
        call, ready, req = _Call(params), _Prompt(prompt), c_void_p()
        stream = Stream(self, timeout)
        while True:
            h = self._enter()
            try:
                rc = ready.submit(h, call, _slice(deadline), req)
                if rc >= 0:
                    stream._attach(req.value or 0)
                    return stream
            except BaseException:  # a signal handler's, after it was sent
                if stream._h is None:
                    _lib.fdc_req_free(req)
                raise
            finally:
                self._leave()
            _no_room(rc, call, deadline)

    def _submit_many(self, todo: Deque[_Prompt], call: _Call, streams: Deque[Stream],
                     deadline: Optional[float]) -> None:
        """Submits as many prompts as there is room for and moves them from todo to
        streams; waits only while streams is empty."""
        subs = (_Submit * min(len(todo), 64))()
        for sub, prompt in zip(subs, todo):
            prompt.fill(sub, call)
        while True:
            h = self._enter()
            try:
                rc = _lib.fdc_submit_many(h, subs, len(subs),
                                          0 if streams else _slice(deadline))
                for sub in subs[:max(rc, 0)]:
                    todo.popleft()
                    streams.append(Stream(self, None))
                    streams[-1]._attach(sub.req)
            except BaseException:  # a signal handler's, after some were sent
                held = {stream._h for stream in streams}
                for sub in subs:
                    if sub.req not in held:
                        _lib.fdc_req_free(sub.req)
                raise
            finally:
                self._leave()
            if streams:
                return
            _no_room(rc or subs[0].status, call, deadline)

    def tokenize(self, text: str, *, literal: bool = False, special: bool = True,
                 spans: Optional[Sequence[Tuple[int, int]]] = None,
                 timeout: Optional[float] = 60.0) -> List[int]:
        """Returns the token ids of text. literal: names of special tokens are plain text;
        spans: they are plain text in these ranges (offset, length), in bytes of the
        UTF-8 text. special: add the begin-of-text token if the model's tokenizer does."""
        return self._tokenize(text, literal, special, spans, timeout)

    def detokenize(self, ids: Sequence[int], *, special: bool = False,
                   timeout: Optional[float] = 60.0) -> str:
        """Returns the text of token ids. special: include the names of special tokens."""
        return self._detokenize(ids, special, timeout)

    def file(self, name: str, *, timeout: Optional[float] = 60.0) -> bytes:
        """Returns one of the model's files, such as "tokenizer_config.json"."""
        return self._file(name, timeout)

    def info(self, *, timeout: Optional[float] = 60.0) -> Info:
        return self._info(timeout)

    def ping(self, *, deep: bool = False, timeout: Optional[float] = 60.0) -> float:
        """Returns the seconds to the gate and back, with deep to the worker and back."""
        return self._ping(deep, timeout)

    def close(self) -> None:
        """Ends the session; its requests are cancelled. Any thread may call it."""
        self._close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()


def _no_room(rc: int, call: _Call, deadline: Optional[float]) -> None:
    """Raises the error of a submit call, unless it may be repeated to wait for room."""
    if rc not in (_E_FULL, _E_TIMEOUT):
        raise call.failed(rc)
    if _slice(deadline) == 0:  # the library names the last of several short waits
        why = call.error.value.decode(errors="replace").rpartition(": ")[2]
        raise _error(_E_TIMEOUT, "E_TIMEOUT: timed out: no room within "
                     f"{time.monotonic() - call.begun:.1f} s: {why}")


# ---- with asyncio ----------------------------------------------------------------------

class AsyncStream(_Request):
    """Stream for asyncio: async for yields pieces of text, events() all events. The first
    read or async with submits the request. A task that is cancelled while it waits here
    cancels the request."""

    _session: AsyncClient

    def __init__(self, client: AsyncClient, prompt: Union[str, Sequence[int]],
                 timeout: Optional[float], params: Mapping[str, Any]) -> None:
        self._call, self._prompt = _Call(params), _Prompt(prompt)
        super().__init__(client)
        self._timeout = timeout
        self._queue: Deque[Tuple[Union[Event, Error], int]] = deque()  # event, size
        self._unread = 0
        self._waiter: Optional[asyncio.Future[None]] = None
        self._started = self._stopped = self._over = self._sent = False

    def _try_submit(self, session: int) -> int:
        req = c_void_p()
        rc = self._prompt.submit(session, self._call, 0, req)
        if rc >= 0:
            self._attach(req.value or 0)
            self._sent = True
        elif rc == _E_DISCONNECTED and _lib.fdc_state(session, None) >= 0:
            return _E_FULL  # reconnecting: try again when the daemon is back
        return rc

    def _pull(self, record: _Event) -> int:
        """Takes at most 64 events from the library; returns their number."""
        for n in range(64):
            try:
                h = self._hold()
            except Error:
                return n
            try:
                rc = _lib.fdc_next(h, byref(record), 0)
                got = _decode(record) if rc == 1 else None
            finally:
                self._release()
            if rc != 1:
                return n
            if got is None:
                continue
            size = 64 + (1 if record.type in (_T_TEXT, _T_PROMPT_TEXT) else 8) * record.n
            if isinstance(got, (Done, Error)):
                super().close()
            elif self._unread + size > (self._session._max_unread or 1 << 24):
                super().close()
                got = _error(_E_UNREAD)
            self._push(got, size)
        return 64

    def _push(self, got: Union[Event, Error], size: int = 0) -> None:
        self._queue.append((got, size))
        self._unread += size
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def start(self) -> AsyncStream:
        """Submits the request as soon as there is room. Reading calls this itself."""
        if not self._started:
            self._started = True
            try:
                if not self._stopped:
                    await self._session._submit(self, _deadline(self._timeout))
                if self._stopped:
                    raise _error(_E_CANCELLED, "the stream was closed")
            except BaseException:
                self.close()
                raise
        return self

    async def _read(self, deadline: Optional[float]) -> Optional[Event]:
        await self.start()
        while not self._queue:
            if self._over:
                self._at_end()
                return None
            if self._stopped:
                raise _error(_E_CANCELLED, "the stream was closed")
            if self._waiter is not None:
                raise RuntimeError("one task at a time can read a stream")
            self._waiter = self._session._future(deadline)
            try:
                await self._waiter
            except asyncio.CancelledError:
                self.close()
                raise
            finally:
                self._waiter = None
        got, size = self._queue.popleft()
        self._unread -= size
        if isinstance(got, (Done, Error)):
            self._over = True
        if isinstance(got, Error):
            raise self._fail(got)
        self.result._add(got)
        return got

    def cancel(self) -> None:
        """Asks the daemon to end the request. Events under way may still arrive, then
        reading raises Cancelled. A request that is not submitted yet never will be."""
        if self._sent:
            super().cancel()
        else:
            self.close()

    def close(self) -> None:
        """Cancels the request if it has not ended, and discards unread events."""
        self._stopped = True
        self._queue.clear()
        self._unread = 0
        super().close()
        self._wake()

    async def read(self) -> Result:
        """Reads to the end and returns the result."""
        deadline = _deadline(self._timeout)
        while await self._read(deadline) is not None:
            pass
        return self.result

    async def events(self) -> AsyncIterator[Event]:
        """Yields all events up to Done. Raises the error if the request ends with one."""
        while True:
            ev = await self._read(_deadline(self._timeout))
            if ev is None:
                return
            yield ev

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> str:
        while True:
            ev = await self._read(_deadline(self._timeout))
            if ev is None:
                raise StopAsyncIteration
            piece = _piece(ev)
            if piece:
                return piece

    async def __aenter__(self) -> AsyncStream:
        return await self.start()

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        value: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        self.close()


class AsyncClient(_Session):
    """A session for one event loop, which waits on the session's descriptor: tokens
    arrive without threads and without polling. The arguments are those of Client.

    async with opens and closes it. The library's blocking calls (opening, tokenize(),
    detokenize(), file(), info(), ping()) run in the loop's executor."""

    def __init__(self, path: Union[str, "os.PathLike[str]", None] = None, *,
                 name: Optional[str] = None, reconnect: Union[bool, float] = False,
                 connect_timeout: float = 5.0, max_unread_bytes: int = 0) -> None:
        super().__init__(path, name, reconnect, connect_timeout, max_unread_bytes)
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._fd = -1
        self._record = _Event(size=ctypes.sizeof(_Event))
        self._waiting: Deque[Tuple[AsyncStream, asyncio.Future[None]]] = deque()

    async def open(self) -> AsyncClient:
        """Opens the session. Tasks that call it at the same time share the session."""
        if self._loop is None:
            await asyncio.to_thread(self._connect)
        if self._loop is None:  # another task may have been first
            self._loop = asyncio.get_running_loop()
            h = self._enter()
            try:
                self._fd = _check(_lib.fdc_fd(h))
            finally:
                self._leave()
            self._loop.add_reader(self._fd, self._pump)
            self._pump()
        return self

    def _future(self, deadline: Optional[float]) -> asyncio.Future[None]:
        """Returns a future that fails with TimedOut at the deadline."""
        assert self._loop is not None
        future: asyncio.Future[None] = self._loop.create_future()
        if deadline is not None:
            timer = self._loop.call_later(deadline - time.monotonic(), _expire, future)
            future.add_done_callback(lambda _: timer.cancel())
        return future

    def _pump(self) -> None:
        """Called when the descriptor is readable: takes the events that have arrived.
        fdc_dispatch() must have returned 0 before the loop waits on it again."""
        if self._closed or self._loop is None:
            return
        h, left = self._enter(), 512  # events before other callbacks get their turn
        try:
            rc = _lib.fdc_dispatch(h)
            while rc > 0 and left > 0:
                left -= self._take(h)
                rc = _lib.fdc_dispatch(h)
            if rc > 0:
                self._loop.call_soon(self._pump)
            self._submit_waiting(h)
        finally:
            self._leave()
        if rc < 0 and self._fd >= 0:
            self._loop.remove_reader(self._fd)
            self._fd = -1

    def _take(self, session: int) -> int:
        req = c_void_p()
        if _lib.fdc_wait_any(session, byref(req), 0) != 1:
            return 1
        ref = self._open.get(req.value or 0)
        stream = ref() if ref is not None else None
        return 1 + (stream._pull(self._record) if isinstance(stream, AsyncStream) else 0)

    def _submit_waiting(self, session: int) -> None:
        while self._waiting:
            stream, future = self._waiting[0]
            if not future.done():
                rc = stream._try_submit(session)
                if rc == _E_FULL:
                    return
                if rc < 0:
                    future.set_exception(stream._call.failed(rc))
                else:
                    future.set_result(None)
            self._waiting.popleft()

    async def _submit(self, stream: AsyncStream, deadline: Optional[float]) -> None:
        if self._loop is not asyncio.get_running_loop():
            if self._loop is None:
                raise RuntimeError("the AsyncClient is not open: use async with, or "
                                   "await open()")
            self.state()  # raises Forked in a child
            raise RuntimeError("the AsyncClient was opened in another event loop")
        h = self._enter()
        try:
            rc = _E_FULL if self._waiting else stream._try_submit(h)
        finally:
            self._leave()
        if rc == _E_FULL:
            future = stream._waiter = self._future(deadline)  # close() ends the wait
            self._waiting.append((stream, future))
            try:
                await future
            finally:
                stream._waiter = None
        elif rc < 0:
            raise stream._call.failed(rc)

    async def generate(self, prompt: Union[str, Sequence[int]], *,
                       timeout: Optional[float] = None,
                       **params: Unpack[Params]) -> Result:
        """Returns the answer to a text or to token ids. timeout: for the whole call."""
        deadline = _deadline(timeout)
        stream = AsyncStream(self, prompt, timeout, params)
        try:
            while await stream._read(deadline) is not None:
                pass
            return stream.result
        finally:
            stream.close()

    def stream(self, prompt: Union[str, Sequence[int]], *,
               timeout: Optional[float] = None, **params: Unpack[Params]) -> AsyncStream:
        """The answer as a stream. timeout: for room in the queue, and for each piece."""
        return AsyncStream(self, prompt, timeout, params)

    async def tokenize(self, text: str, *, literal: bool = False, special: bool = True,
                       spans: Optional[Sequence[Tuple[int, int]]] = None,
                       timeout: Optional[float] = 60.0) -> List[int]:
        return await asyncio.to_thread(self._tokenize, text, literal, special, spans,
                                       timeout)

    async def detokenize(self, ids: Sequence[int], *, special: bool = False,
                         timeout: Optional[float] = 60.0) -> str:
        return await asyncio.to_thread(self._detokenize, ids, special, timeout)

    async def file(self, name: str, *, timeout: Optional[float] = 60.0) -> bytes:
        return await asyncio.to_thread(self._file, name, timeout)

    async def info(self, *, timeout: Optional[float] = 60.0) -> Info:
        return await asyncio.to_thread(self._info, timeout)

    async def ping(self, *, deep: bool = False, timeout: Optional[float] = 60.0) -> float:
        return await asyncio.to_thread(self._ping, deep, timeout)

    async def close(self) -> None:
        """Ends the session; its requests are cancelled."""
        if self._fd >= 0 and self._loop is not None:
            self._loop.remove_reader(self._fd)
            self._fd = -1
        with self._mu:
            streams = [ref() for ref in list(self._open.values())]
        self._close()
        closed = "the client was closed"
        for stream in streams:
            if isinstance(stream, AsyncStream):
                stream._push(_error(_E_CANCELLED, closed))
        while self._waiting:
            _, future = self._waiting.popleft()
            if not future.done():
                future.set_exception(_error(_E_CANCELLED, closed))

    async def __aenter__(self) -> AsyncClient:
        return await self.open()

    async def __aexit__(self, kind: Optional[Type[BaseException]],
                        value: Optional[BaseException],
                        trace: Optional[TracebackType]) -> None:
        await self.close()


def _expire(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_exception(_error(_E_TIMEOUT))
