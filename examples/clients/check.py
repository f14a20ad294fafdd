"""Asks models through other people's programs, each as its own documentation says, and looks at what came back.

The model behind must answer as script.toml does. Every check is a function; `ok NAME` is printed for each, and the first
that fails ends the run. What a client is told by its own arguments is the address, the key and the model's name: nothing
else of it is changed.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile

CAPITAL = "What is the capital of France?"
PARIS = "The capital of France is Paris."
WEATHER = "How is the weather in Berlin? Use the tool."
DEGREES = "It is 21 degrees in Berlin."
RESULT = json.dumps({"celsius": 21})
# What the scripted server makes of every text.
VECTOR = [1.0, 0.5]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT_TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": CITY}}

CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def same(found, expected):
    assert found == expected, f"{found!r} is not {expected!r}"


def user(text):
    return [{"role": "user", "content": text}]


def openai_client(at, **more):
    import openai

    return openai.OpenAI(base_url=f"{at.base_url}/v1", api_key=at.key, **more)


def anthropic_client(at, **more):
    import anthropic

    return anthropic.Anthropic(base_url=at.base_url, api_key=at.key, **more)


@check
def openai_chat(at):
    answer = openai_client(at).chat.completions.create(model=at.model, messages=user(CAPITAL))
    same(answer.choices[0].message.content, PARIS)
    same(answer.choices[0].finish_reason, "stop")
    assert answer.usage.prompt_tokens > 0 and answer.usage.completion_tokens > 0, answer.usage


@check
def openai_stream(at):
    options = {"include_usage": True}
    stream = openai_client(at).chat.completions.create(
        model=at.model, messages=user(CAPITAL), stream=True, stream_options=options
    )
    chunks = list(stream)
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices and chunk.choices[0].delta.content]
    same("".join(pieces), PARIS)
    assert len(pieces) > 3, f"{len(pieces)} pieces"
    assert chunks[-1].usage.completion_tokens > 0, chunks[-1]
    plain = openai_client(at).chat.completions.create(model=at.model, messages=user(CAPITAL), stream=True)
    assert all(chunk.usage is None and chunk.choices for chunk in plain), "usage that nobody asked for"


@check
def openai_tools(at):
    client, messages = openai_client(at), user(WEATHER)
    for stream in (False, True):
        ask = {"model": at.model, "messages": messages, "tools": [CHAT_TOOL]}
        if stream:
            with client.chat.completions.stream(**ask) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**ask).choices[0].message
        (call,) = message.tool_calls
        same((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"city": "Berlin"}))
        result = {"role": "tool", "tool_call_id": call.id, "content": RESULT}
        asked = {"id": call.id, "type": "function", "function": {"name": call.function.name, "arguments": call.function.arguments}}
        turns = [*messages, {"role": "assistant", "content": None, "tool_calls": [asked]}, result]
        answer = client.chat.completions.create(model=at.model, messages=turns, tools=[CHAT_TOOL])
        same(answer.choices[0].message.content, DEGREES)


@check
def openai_many(at):
    """Several at once over the asynchronous client."""
    import openai

    async def ask():
        async with openai.AsyncOpenAI(base_url=f"{at.base_url}/v1", api_key=at.key) as client:
            one = lambda: client.chat.completions.create(model=at.model, messages=user(CAPITAL))
            return await asyncio.gather(*(one() for _ in range(16)))

    for answer in asyncio.run(ask()):
        same(answer.choices[0].message.content, PARIS)


@check
def openai_responses(at):
    client = openai_client(at)
    answer = client.responses.create(model=at.model, instructions="Be brief.", input=CAPITAL)
    same((answer.output_text, answer.status), (PARIS, "completed"))
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0, answer.usage
    with client.responses.stream(model=at.model, input=CAPITAL) as events:
        pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
        same((events.get_final_response().output_text, "".join(pieces)), (PARIS, PARIS))
    assert len(pieces) > 3, f"{len(pieces)} pieces"
    tool = {"type": "function", "name": "get_weather", "description": "The weather.", "parameters": CITY, "strict": False}
    turns = user(WEATHER)
    answer = client.responses.create(model=at.model, input=turns, tools=[tool])
    (call,) = [item for item in answer.output if item.type == "function_call"]
    same((call.name, json.loads(call.arguments)), ("get_weather", {"city": "Berlin"}))
    turns += [item.to_dict() for item in answer.output]
    turns.append({"type": "function_call_output", "call_id": call.call_id, "output": RESULT})
    same(client.responses.create(model=at.model, input=turns, tools=[tool]).output_text, DEGREES)


@check
def openai_models(at):
    names = [model.id for model in openai_client(at).models.list()]
    assert at.model in names, names


@check
def openai_embeddings(at):
    """The client asks for base64 of its own accord, and unpacks it."""
    ask, client = {"model": at.model, "input": ["one", "two"]}, openai_client(at)
    for answer in (client.embeddings.create(**ask), client.embeddings.create(**ask, encoding_format="float")):
        same([(datum.index, list(datum.embedding)) for datum in answer.data], [(0, VECTOR), (1, VECTOR)])
        assert answer.usage.prompt_tokens > 0, answer.usage
    raw = client.embeddings.with_raw_response.create(**ask)
    assert all(isinstance(datum["embedding"], str) for datum in json.loads(raw.text)["data"]), raw.text


@check
def anthropic_messages(at):
    answer = anthropic_client(at).messages.create(
        model=at.model, max_tokens=100, system="Be brief.", messages=user(CAPITAL)
    )
    same((answer.content[0].type, answer.content[0].text, answer.stop_reason), ("text", PARIS, "end_turn"))
    assert answer.usage.input_tokens > 0 and answer.usage.output_tokens > 0, answer.usage


@check
def anthropic_stream(at):
    with anthropic_client(at).messages.stream(model=at.model, max_tokens=100, messages=user(CAPITAL)) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    same(("".join(pieces), final.content[0].text, final.stop_reason), (PARIS, PARIS, "end_turn"))
    assert len(pieces) > 3, f"{len(pieces)} pieces"


@check
def anthropic_tools(at):
    client = anthropic_client(at)
    tool = {"name": "get_weather", "description": "The weather.", "input_schema": CITY}
    for stream in (False, True):
        turns = user(WEATHER)
        ask = {"model": at.model, "max_tokens": 100, "tools": [tool]}
        if stream:
            with client.messages.stream(messages=turns, **ask) as events:
                message = events.get_final_message()
        else:
            message = client.messages.create(messages=turns, **ask)
        same(message.stop_reason, "tool_use")
        (call,) = [block for block in message.content if block.type == "tool_use"]
        same((call.name, call.input), ("get_weather", {"city": "Berlin"}))
        turns.append({"role": "assistant", "content": [block.to_dict() for block in message.content]})
        turns.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": RESULT}]})
        same(client.messages.create(messages=turns, **ask).content[0].text, DEGREES)


@check
def langchain(at):
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    @tool
    def get_weather(city: str) -> str:
        """The weather."""
        same(city, "Berlin")
        return RESULT

    model = ChatOpenAI(model=at.model, base_url=f"{at.base_url}/v1", api_key=at.key)
    same(model.invoke(CAPITAL).content, PARIS)
    pieces = [chunk.content for chunk in model.stream(CAPITAL) if chunk.content]
    same("".join(pieces), PARIS)
    assert len(pieces) > 3, f"{len(pieces)} pieces"
    able, turns = model.bind_tools([get_weather]), [HumanMessage(WEATHER)]
    turns.append(able.invoke(turns))
    (call,) = turns[-1].tool_calls
    turns.append(ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"]))
    same(able.invoke(turns).content, DEGREES)
    # Otherwise it fetches a tokenizer to count by, and sends numbers.
    vectors = OpenAIEmbeddings(model=at.model, base_url=f"{at.base_url}/v1", api_key=at.key, check_embedding_ctx_length=False)
    same(vectors.embed_documents(["one", "two"]), [VECTOR, VECTOR])


@check
def litellm(at):
    """Without tools: for these it wants its proxy's parts, which the package alone does not bring."""
    import litellm

    litellm.suppress_debug_info = True
    for name, base_url in (("openai", f"{at.base_url}/v1"), ("anthropic", at.base_url)):
        ask = {"model": f"{name}/{at.model}", "api_base": base_url, "api_key": at.key, "messages": user(CAPITAL)}
        same(litellm.completion(**ask).choices[0].message.content, PARIS)
        pieces = [chunk.choices[0].delta.content for chunk in litellm.completion(stream=True, **ask)]
        same("".join(piece or "" for piece in pieces), PARIS)
    answer = litellm.embedding(model=f"openai/{at.model}", input=["one"], api_base=f"{at.base_url}/v1", api_key=at.key)
    same(answer.data[0]["embedding"], VECTOR)


@check
def llm_agent(at):
    """The command line agent `llm`, once for an answer and once with a function that it may call."""
    with tempfile.TemporaryDirectory() as home:
        model = {"model_id": "aos", "model_name": at.model, "api_base": f"{at.base_url}/v1", "supports_tools": True}
        model["api_key_name"] = "aos"  # Without a name for it, no key is sent.
        with open(os.path.join(home, "extra-openai-models.yaml"), "w") as file:
            json.dump([model], file)  # JSON is YAML
        function = f"def get_weather(city: str) -> str:\n    assert city == 'Berlin'\n    return {RESULT!r}"

        def llm(*words):
            done = subprocess.run(
                ["llm", "-m", "aos", "--key", at.key, *words],
                env={**os.environ, "LLM_USER_PATH": home}, stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=120,
            )
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        same(llm(CAPITAL), PARIS)
        same(llm("--no-stream", CAPITAL), PARIS)
        same(llm("--functions", function, WEATHER), DEGREES)


@check
def errors(at):
    """What is wrong raises the clients' own exceptions, and they say what to do about it."""
    import anthropic
    import openai

    wrong = argparse.Namespace(**{**vars(at), "key": "aos_sk_" + "0" * 43})
    with raises(openai.AuthenticationError, 401, "aos models key"):
        openai_client(wrong).chat.completions.create(model=at.model, messages=user(CAPITAL))
    with raises(openai.AuthenticationError, 401, "aos models key"):
        openai_client(wrong).models.list()
    with raises(anthropic.AuthenticationError, 401, "aos models key"):
        anthropic_client(wrong).messages.create(model=at.model, max_tokens=9, messages=user(CAPITAL))
    with raises(openai.APIStatusError, (400, 404), "no-such-model"):
        openai_client(at).chat.completions.create(model="no-such-model", messages=user(CAPITAL))
    with raises(anthropic.APIStatusError, (400, 404), "no-such-model"):
        anthropic_client(at).messages.create(model="no-such-model", max_tokens=9, messages=user(CAPITAL))


@check
def headers(at):
    raw = openai_client(at).chat.completions.with_raw_response.create(model=at.model, messages=user(CAPITAL))
    assert raw.headers.get("x-aos-model"), dict(raw.headers)
    same(raw.parse().choices[0].message.content, PARIS)


@check
def spent(at):
    """A key whose budget is spent, where one is given."""
    import anthropic
    import openai

    if at.spent_key is None:
        return
    poor = argparse.Namespace(**{**vars(at), "key": at.spent_key})
    with raises(openai.APIStatusError, 402, "") as raised:
        openai_client(poor).chat.completions.create(model=at.model, messages=user(CAPITAL))
    same((raised.error.type, raised.error.code), ("insufficient_quota", "EDQUOT"))
    with raises(anthropic.APIStatusError, 402, ""):
        anthropic_client(poor).messages.create(model=at.model, max_tokens=9, messages=user(CAPITAL))


class raises:
    """Expects an exception of a client, with a status and a word of its message."""

    def __init__(self, kind, statuses, word):
        self.kind, self.word = kind, word
        self.statuses = statuses if isinstance(statuses, tuple) else (statuses,)
        self.error = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        assert error is not None, f"no {self.kind.__name__}"
        if not isinstance(error, self.kind):
            return False
        self.error = error
        assert error.status_code in self.statuses and self.word in str(error), f"{error.status_code} {error}"
        return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base-url", required=True, help="such as http://127.0.0.1:7717, with or without /v1")
    # In a command line every user of the machine would see them.
    key, spent = os.environ.get("AOS_KEY"), os.environ.get("AOS_SPENT_KEY")
    parser.add_argument("--key", default=key, required=not key, help="a program's key (AOS_KEY)")
    parser.add_argument("--spent-key", default=spent, help="a key whose budget is spent (AOS_SPENT_KEY)")
    parser.add_argument("--model", default="scripted", help="the model to name")
    parser.add_argument("checks", nargs="*", help=f"which ones, all where none is named: {', '.join(CHECKS)}")
    at = parser.parse_args()
    at.base_url = at.base_url.rstrip("/").removesuffix("/v1")
    if odd := set(at.checks) - set(CHECKS):
        parser.error(f"there is no check {', '.join(sorted(odd))}")
    for name in at.checks or CHECKS:
        try:
            CHECKS[name](at)
        except Exception:
            print(f"FAILED {name}", file=sys.stderr)
            raise
        print(f"ok {name}", flush=True)


main()
