# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""Client against the demo model: what fdctl gives, every parameter, every refusal."""
import gc
import math
import pickle
import threading
import unittest
import os

import fdclient
from common import PROMPT, ctl, greedy, n_fds, n_requests, rss, until

LONG = {"max_new": 900, "ignore_eos": True}


class Api(unittest.TestCase):
    def setUp(self):
        self.fdd = fdclient.Client(name="api")

    def tearDown(self):
        self.fdd.close()

    def generate(self, tokens=24, **more):
        return self.fdd.generate(PROMPT, max_new=tokens, ignore_eos=True, **more)

    def test_same_as_fdctl(self):
        want = greedy(24)
        got = self.generate(temperature=0)
        self.assertEqual((got.text, got.ids, got.finish),
                         (want["text"], want["ids"], "length"))
        self.assertEqual(got.usage.output_tokens, 24)
        self.assertEqual(got.usage.prompt_tokens, len(self.fdd.tokenize(PROMPT)))
        usage = got.usage
        self.assertTrue(0 <= usage.queue_s <= usage.first_s <= usage.total_s < 60)
        self.assertEqual("".join(self.fdd.stream(PROMPT, max_new=24, ignore_eos=True,
                                                 temperature=0)), want["text"])
        ids = self.fdd.tokenize(PROMPT)
        self.assertEqual(self.fdd.generate(ids, max_new=24, ignore_eos=True,
                                           temperature=0).ids, want["ids"])

    def test_seed(self):
        one = self.generate(temperature=1.0, seed=7)
        self.assertEqual(one.seed, 7)
        self.assertEqual(one.ids, self.generate(temperature=1.0, seed=7).ids)
        self.assertNotEqual(one.ids, self.generate(temperature=1.0, seed=8).ids)
        drawn = self.generate(temperature=1.0)
        self.assertEqual(drawn.ids, self.generate(temperature=1.0, seed=drawn.seed).ids)

    def test_samples(self):
        r = self.generate(temperature=1.0, seed=3, n=4)
        self.assertEqual([s.index for s in r.samples], [0, 1, 2, 3])
        self.assertEqual([len(s.ids) for s in r.samples], [24] * 4)
        self.assertEqual(len({s.text for s in r.samples}), 4)
        for s in r.samples:
            self.assertEqual(self.fdd.detokenize(s.ids), s.text)

    def test_logprobs(self):
        r = self.generate(6, temperature=0, logprobs=3, prompt_logprobs=2,
                          prompt_ids=True)
        self.assertEqual(r.prompt_ids, self.fdd.tokenize(PROMPT))
        self.assertEqual([t[0].id for t in r.logprobs], r.ids)
        for t in r.logprobs:
            self.assertEqual(len(t), 4)
            self.assertEqual(t[0], t[1])  # greedy takes the best
            self.assertTrue(t[1].logprob >= t[2].logprob >= t[3].logprob)
            self.assertLess(sum(math.exp(a.logprob) for a in t[1:]), 1.0001)
        self.assertEqual(sorted(r.prompt_logprobs), list(range(1, len(r.prompt_ids))))
        for position, t in r.prompt_logprobs.items():
            self.assertEqual(t[0].id, r.prompt_ids[position])
            self.assertEqual(len(t), 3)
        self.assertEqual([len(t) for t in self.generate(2, logprobs=0).logprobs], [1, 1])
        self.assertEqual(self.generate(2).logprobs, [])

    def test_token_text(self):
        r = self.generate(6, temperature=0, logprobs=1, prompt_logprobs=0,
                          token_text=True, prompt_text=True)
        self.assertEqual(b"".join(t[0].text for t in r.logprobs).decode(), r.text)
        self.assertEqual(self.fdd.detokenize([r.logprobs[0][1].id]).encode(),
                         r.logprobs[0][1].text)
        self.assertEqual(b"".join(t[0].text for t in r.prompt_logprobs.values()).decode(),
                         PROMPT)
        self.assertEqual(r.prompt_text, PROMPT)
        pieces = list(self.fdd.stream(PROMPT, max_new=2, temperature=0, prompt_text=True,
                                      ignore_eos=True))
        self.assertEqual("".join(pieces), PROMPT + self.generate(2, temperature=0).text)

    def test_stop(self):
        text = self.generate(temperature=0).text
        stop_at = text.split()[3]
        for stop in (stop_at, [stop_at], ["\0", stop_at]):
            r = self.generate(temperature=0, stop=stop)
            self.assertEqual((r.text, r.finish), (text[:text.index(stop_at)], "stop"))
        self.assertEqual(r.samples[0].end.stop_string, 1)
        r = self.generate(temperature=0, stop=stop_at, keep_stop=True)
        self.assertTrue(r.text.endswith(stop_at))
        ids = self.generate(temperature=0).ids
        r = self.generate(temperature=0, stop_ids=[ids[4]])
        self.assertEqual((r.finish, r.samples[0].end.stop_id), ("stop", ids[4]))
        self.assertEqual(r.samples[0].end.n_tokens, ids.index(ids[4]) + 1)

    def test_prior(self):
        whole = self.generate(12, temperature=0)
        rest = self.generate(12, temperature=0, prior_ids=whole.ids[:5])
        self.assertEqual(whole.ids[:5] + rest.ids, whole.ids)

    def test_events(self):
        kinds = []
        with self.fdd.stream(PROMPT, max_new=3, ignore_eos=True,
                             prompt_ids=True) as stream:
            self.assertNotEqual(stream.tag, 0)
            for ev in stream.events():
                kinds.append(type(ev).__name__)
            self.assertEqual(len(stream.result.ids), 3)
        self.assertEqual(kinds[0], "Accepted")
        self.assertEqual(kinds[-1], "Done")
        self.assertEqual({"PromptIds", "Ids", "Text", "SampleEnd"} - set(kinds), set())
        self.assertEqual(list(stream.events()), [])
        self.assertEqual(self.generate(2, text=False).text, "")
        big = self.fdd.stream(PROMPT, max_new=64, ignore_eos=True, stream_interval=64)
        self.assertTrue(any(isinstance(e, fdclient.Ids) and len(e.ids) > 8
                            for e in big.events()))

    def test_many(self):
        n = self.fdd.info().max_inflight + 20
        prompts = [f"{PROMPT} {i}" for i in range(n)]
        got = self.fdd.generate_many(prompts, max_new=4, temperature=0, ignore_eos=True)
        self.assertEqual(len(got), n)
        for i in (0, 63, 64, n - 1):
            self.assertEqual(got[i].text, greedy(4, prompts[i])["text"])
        self.assertEqual(self.fdd.generate_many([]), [])
        with self.assertRaises(fdclient.Error) as e:
            self.fdd.generate_many(prompts, temperature=150)
        self.assertEqual(e.exception.detail, "temperature")
        until(lambda: n_requests() == 0)

    def test_tokens(self):
        ids = self.fdd.tokenize("unto them\0 and", special=False)
        self.assertEqual(self.fdd.detokenize(ids), "unto them\0 and")
        self.assertEqual(len(self.fdd.tokenize("", special=False)), 0)
        self.assertEqual(self.fdd.detokenize([]), "")
        info = self.fdd.info()
        self.assertEqual(self.fdd.tokenize("a")[0], info.bos_id)
        with self.assertRaises(fdclient.Error) as e:
            self.fdd.detokenize([info.vocab])
        self.assertEqual(e.exception.name, "E_BAD_TOKEN")

    def test_info(self):
        info = self.fdd.info()
        self.assertEqual(info.model, "demo")
        self.assertEqual((info.vocab, info.max_model_len), (4096, 1024))
        self.assertTrue(info.has_tokenizer and info.limits["max_n"] == 64)
        self.assertEqual(info.n_reconnect, 0)
        self.assertEqual(self.fdd.state(), [])
        self.assertTrue(0 < self.fdd.ping() < 10 and 0 < self.fdd.ping(deep=True) < 10)
        self.assertIn("api", ctl("clients"))

    def test_file(self):
        try:
            got = self.fdd.file("tokenizer_config.json")
        except fdclient.Error as e:
            self.assertEqual(e.name, "E_UNSUPPORTED")
            self.skipTest("this daemon sends no files")
        with open(os.environ["FDD_SRC"] + "/conf/models/demo/tokenizer_config.json",
                  "rb") as f:
            self.assertEqual(got, f.read())
        with self.assertRaises(fdclient.Error) as e:
            self.fdd.file("weights")
        self.assertEqual(e.exception.name, "E_NO_FILE")

    def test_refused_here(self):
        """What the fields cannot hold, or what has no meaning, before it is sent."""
        for params, kind, text in (
                ({"temprature": 1}, TypeError, "'temprature'.*is it 'temperature'"),
                ({"beam": 1}, TypeError, "no parameter 'beam'"),
                ({"max_new": -1}, ValueError, "max_new is -1: .*from 0 to 4294967294"),
                ({"max_new": 2**32 - 1}, ValueError, "max_new is 4294967295"),
                ({"max_new": 1.5}, TypeError, "max_new is 1.5: it must be an integer"),
                ({"seed": 2**64}, ValueError, "seed is 18446744073709551616"),
                ({"logprobs": -1}, ValueError, "logprobs is -1"),
                ({"temperature": "hot"}, TypeError, "temperature is 'hot'.*a number"),
                ({"temperature": -3.4028234663852886e38}, ValueError, "not set"),
                ({"temperature": 10**400}, ValueError, "than a float can hold"),
                ({"adapter": 5}, TypeError, "adapter is 5: it must be a string"),
                ({"timeout": math.nan}, ValueError, "timeout is nan"),
                ({"stop": 5}, TypeError, "not iterable"),
                ({"stop": [5]}, TypeError, "stop holds 5"),
                ({"stop_ids": [-1]}, ValueError, "stop_ids holds -1: ids are from 0"),
                ({"stop_ids": [2**32]}, ValueError, "holds 4294967296"),
                ({"stop_ids": "12"}, TypeError, "stop_ids is str"),
                ({"stop_ids": ["a"]}, TypeError, "all integers"),
                ({"bad_words": ["a\0b"]}, ValueError, "NUL"),
                ({"salt": b"x" * 17}, ValueError, "salt .*16 bytes at most"),
                ({"repetition": (1, 2)}, TypeError, "min_len, max_len, count"),
                ({"priority": 2**31}, ValueError, "priority is 2147483648")):
            with self.assertRaisesRegex(kind, text):
                self.fdd.generate(PROMPT, **params)
        with self.assertRaisesRegex(TypeError, "the prompt is bytes"):
            self.fdd.generate(b"abc")
        with self.assertRaisesRegex(TypeError, "the prompt must be a list of token ids"):
            self.fdd.generate([1, None])
        with self.assertRaisesRegex(ValueError, "path is '/tmp/a.*NUL"):
            fdclient.Client("/tmp/a\0b")

    def test_timeouts(self):
        """Without a limit, infinite, and shorter than what the library counts in."""
        for t in (None, math.inf):
            self.assertEqual(len(self.generate(2, timeout=t).ids), 2)
            self.assertEqual(len(self.fdd.tokenize("a", timeout=t)), 2)
            with fdclient.Client(connect_timeout=t, reconnect=t or 0) as fdd:
                self.assertTrue(fdd.ping(timeout=t) > 0)
        try:  # a millisecond is enough on an idle machine
            fdclient.Client(connect_timeout=1e-7, reconnect=1e-7).close()
        except fdclient.Error as e:
            self.assertIsInstance(e, fdclient.TimedOut)
        self.assertEqual(fdclient._ms_field("reconnect", 1e-7, 0), 1)
        with self.assertRaises(fdclient.TimedOut):
            self.generate(timeout=0)
        for _ in range(50):  # it is there now and then, but nothing else is said
            for t in (0, 1e-7):
                try:
                    self.fdd.tokenize("a" * 100, timeout=t)
                except fdclient.Error as e:
                    self.assertIsInstance(e, fdclient.TimedOut)

    def test_failed_stays_failed(self):
        """What came before an error is not taken for the whole answer later."""
        stream = self.fdd.stream(PROMPT, **LONG)
        next(stream)
        stream.cancel()
        for read in (stream.read, stream.read, lambda: list(stream),
                     lambda: list(stream.events())):
            with self.assertRaises(fdclient.Cancelled):
                read()
        self.assertGreater(len(stream.result.ids), 0)

    def test_refused_there(self):
        """The daemon's bounds: name, value and bound are those of the request."""
        for params, name, detail, value, limit in (
                ({"temperature": 150.0}, "E_BAD_PARAM", "temperature", 150.0, 100.0),
                ({"top_p": -1.0}, "E_BAD_PARAM", "top_p", -1.0, 0.0),
                ({"n": 65}, "E_BAD_PARAM", "n", 65, 64),
                ({"logprobs": 21}, "E_BAD_PARAM", "logprobs", 21, 20),
                ({"stop": ["x" * 257]}, "E_BAD_PARAM", "stop", 257, 256),
                ({"max_new": 5000}, "E_TOO_LONG", "max_new", 5000, 1024)):
            with self.assertRaises(fdclient.Error) as caught:
                self.fdd.generate(PROMPT, **params)
            e = caught.exception
            self.assertEqual((e.name, e.detail, e.value, e.limit, e.retryable),
                             (name, detail, value, limit, False), params)
            self.assertRegex(str(e), f"^{name}: .*{detail}.* is ")
            again = pickle.loads(pickle.dumps(e))
            self.assertEqual((str(again), vars(again)), (str(e), vars(e)))
        with self.assertRaises(fdclient.Error) as caught:
            self.fdd.generate("x " * 1000)
        self.assertEqual((caught.exception.name, caught.exception.limit),
                         ("E_TOO_LONG", 1023))
        with self.assertRaises(fdclient.Error) as caught:
            self.fdd.generate([4096])
        self.assertEqual(caught.exception.name, "E_BAD_TOKEN")
        with self.assertRaises(fdclient.Error) as caught:
            self.fdd.generate("x" * (self.fdd.info().max_request_bytes + 1))
        self.assertEqual(caught.exception.name, "E_ARENA")

    def test_each_parameter(self):
        """Each is sent: what it changes is seen, or the daemon says that it has none."""
        offers = self.fdd.info().offers
        base = self.generate(8, temperature=0)
        for name, value, seen in (
                ("bias", {base.ids[0]: -100.0}, lambda r: r.ids[0] != base.ids[0]),
                ("bad_words", [base.text.split()[0]],
                 lambda r: base.text.split()[0] not in r.text),
                ("bad_ids", [[base.ids[0]], [1, 2]], lambda r: r.ids[0] != base.ids[0]),
                ("allowed_ids", [base.ids[2]], lambda r: set(r.ids) == {base.ids[2]}),
                ("spans", [(0, 2)], lambda r: r.ids == base.ids),
                ("repetition", (1, 4, 2), lambda r: len(r.ids) <= 8),
                ("reasoning", (2, 5, 6), lambda r: len(r.ids) == 8),
                ("adapter", "none", lambda r: False),
                ("grammar", b"\x01root", lambda r: False)):
            try:
                r = self.generate(8, temperature=0, **{name: value})
                self.assertTrue(seen(r), f"{name}: {r.ids}, without {base.ids}")
            except fdclient.Error as e:
                self.assertTrue(name not in offers or name in ("adapter", "grammar"),
                                str(e))
                self.assertIn(e.name, ("E_UNSUPPORTED", "E_BAD_PARAM"), str(e))
        if "logprob_ids" in offers:
            r = self.generate(2, logprobs=0, logprob_ids=[9, 11])
            self.assertEqual([t.id for t in r.logprobs[0][1:]], [9, 11])
        for params in ({"min_new": 2}, {"min_p": 0.1}, {"top_k": 1}, {"top_p": 0.5},
                       {"presence_penalty": 0.5}, {"frequency_penalty": 0.5},
                       {"repetition_penalty": 1.1}, {"priority": -5}, {"salt": b"mine"},
                       {"ttl_queue_ms": 60000}, {"ttl_total_ms": 60000},
                       {"no_special": True}, {"keep_special": True},
                       {"parse_special": True},
                       {"no_resume": True}, {"min_new": None}):
            self.assertEqual(len(self.generate(3, **params).ids), 3, params)
        self.assertEqual(self.generate(8, temperature=5.0, top_k=1).ids, base.ids)

    def test_memory(self):
        """10,000 requests, one in eight of them cut short, leave no memory behind."""
        def some(n):
            for i in range(n):
                stream = self.fdd.stream("a", max_new=8 if i % 8 == 0 else 1, logprobs=1)
                if i % 8 == 0:
                    next(stream, None)
                else:
                    stream.read()
                del stream
        some(1000)
        gc.collect()
        before, fds = rss(), n_fds()
        some(10000)
        gc.collect()
        grown = rss() - before
        self.assertLess(grown, 2 << 20, "bytes for 10,000 requests")
        self.assertEqual((n_fds(), len(self.fdd._open)), (fds, 0))

    def test_sessions(self):
        fds = n_fds()
        for _ in range(50):
            with fdclient.Client() as other:
                other.stream(PROMPT, **LONG)
        gc.collect()
        self.assertEqual(n_fds(), fds)
        until(lambda: n_requests() == 0)

    def test_threads(self):
        want, failed = greedy(16)["text"], []

        def work():
            try:
                for _ in range(10):
                    got = self.fdd.generate(PROMPT, max_new=16, temperature=0,
                                            ignore_eos=True).text
                    assert got == want, got
            except BaseException as e:
                failed.append(e)
        threads = [threading.Thread(target=work) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failed, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
