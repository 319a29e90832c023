# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
"""LangChain's client of OpenAI's API, unmodified."""
import asyncio
import os

import openai
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

URL = f"http://127.0.0.1:{os.environ['FDD_HTTP_PORT']}/v1"
NAME = os.environ["FDD_MODEL"]
WAY = {"base_url": URL, "api_key": "k-one", "model": NAME, "max_retries": 0}


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return "rain in " + city


async def several(chat):
    answers = await chat.abatch(["In the beginning"] * 4)
    assert len({a.content for a in answers}) == 1, answers
    pieces = [p.content async for p in chat.astream("In the beginning")]
    assert "".join(pieces) == answers[0].content and len(pieces) > 2, pieces


def main():
    chat = ChatOpenAI(**WAY, max_tokens=12, seed=1, temperature=0)
    whole = chat.invoke([SystemMessage("Be brief."), HumanMessage("In the beginning"), AIMessage("God created"),
                         HumanMessage("And then?")])
    assert whole.content and whole.usage_metadata["output_tokens"] == 12, whole
    assert whole.response_metadata["finish_reason"] == "length", whole
    asyncio.run(several(chat))
    total = None
    for p in ChatOpenAI(**WAY, max_tokens=12, temperature=0, stream_usage=True).stream("In the beginning"):
        total = p if total is None else total + p
    assert total.usage_metadata["output_tokens"] == 12, total
    assert chat.bind_tools([weather]).invoke("In the beginning").tool_calls == []
    marked = chat.bind(logprobs=True, top_logprobs=2).invoke("In the beginning")
    assert len(marked.response_metadata["logprobs"]["content"]) == 12, marked.response_metadata
    chain = chat | (lambda m: m.content.upper())
    assert chain.invoke("In the beginning").isupper()
    text = OpenAI(**WAY, max_tokens=8, temperature=0)
    assert text.invoke("In the beginning") and len(text.generate(["a", "b"]).generations) == 2
    try:
        OpenAIEmbeddings(**WAY, check_embedding_ctx_length=False).embed_query("a")
    except openai.NotFoundError as e:
        assert "/v1/embeddings" in str(e), e
    else:
        raise AssertionError("embeddings of a model that has none")


main()
