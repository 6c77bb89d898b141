"""The official client of OpenAI's interface, over a real socket."""

import openai
import pytest

ASKED = "What is the code of the oil-store padlock?"
USER = [{"role": "user", "content": ASKED}]
NOTES = "longctx/notes"


@pytest.fixture(scope="module")
def alone(documents):
    """The answer through the Python interface."""
    return documents.document("notes").ask(ASKED)


def test_every_document_is_a_model(served):
    models = {model.id: model for model in served.openai.models.list()}
    assert {*models} == {NOTES, "longctx/letter", "longctx"}
    assert models["longctx"].tokens == models[NOTES].tokens + models["longctx/letter"].tokens
    assert served.openai.models.retrieve(NOTES) == models[NOTES]
    with pytest.raises(openai.NotFoundError, match="no model 'longctx/other'"):
        served.openai.models.retrieve("longctx/other")


def test_a_chat_is_the_answer_asked_alone(served, alone):
    told = served.openai.chat.completions.create(model=NOTES, messages=USER)
    message = told.choices[0].message
    assert (message.role, message.content) == ("assistant", alone.answer)
    assert (told.model, told.choices[0].finish_reason) == (NOTES, "stop")
    used = told.usage
    assert used.completion_tokens == alone.tokens["answer"] > 0
    assert used.prompt_tokens > alone.tokens["question"]
    assert used.total_tokens == used.prompt_tokens + used.completion_tokens


def test_citations_are_annotations(served, alone, documents):
    told = served.openai.chat.completions.create(model=NOTES, messages=USER)
    annotation = told.choices[0].message.annotations[0]
    assert annotation.type == "url_citation"
    cited = annotation.url_citation
    assert cited.title == f"{alone.sentence.source}:2"
    assert cited.url.startswith(f"{served.address}/#document=notes&source=")
    assert (cited.start_index, cited.end_index) == (0, len(alone.answer))
    assert cited.text == "The code of the oil-store padlock is 58204."
    assert documents.document("notes").text(cited.start, cited.end) == cited.text


def test_a_chat_in_pieces_is_the_same(served, alone):
    chunks = [
        *served.openai.chat.completions.create(
            model=NOTES, messages=USER, stream=True, stream_options={"include_usage": True}
        )
    ]
    *told, last = chunks
    deltas = [chunk.choices[0].delta for chunk in told]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas).strip() == alone.answer
    assert told[-1].choices[0].finish_reason == "stop"
    annotations = deltas[-1].annotations
    assert annotations[0]["url_citation"]["text"] == alone.sentence.text
    assert (last.choices, last.usage.completion_tokens) == ([], alone.tokens["answer"])
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_response_is_the_answer_asked_alone(served, alone):
    told = served.openai.responses.create(model=NOTES, input=ASKED)
    assert (told.output_text, told.status) == (alone.answer, "completed")
    annotation = told.output[0].content[0].annotations[0]
    assert (annotation.type, annotation.text) == ("url_citation", alone.sentence.text)
    assert told.usage.output_tokens == alone.tokens["answer"]
    assert told.usage.total_tokens == told.usage.input_tokens + told.usage.output_tokens


def test_a_response_in_events_is_the_same(served, alone):
    with served.openai.responses.stream(model=NOTES, input=USER) as stream:
        events = [*stream]
        final = stream.get_final_response()
    assert final.output_text == alone.answer
    assert final.output[0].content[0].annotations[0].text == alone.sentence.text
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-1] == "response.completed"
    assert "response.output_text.annotation.added" in kinds
    numbers = [event.sequence_number for event in events if hasattr(event, "sequence_number")]
    assert numbers == [*range(len(numbers))]


def test_all_documents_are_asked_together(served):
    told = served.openai.chat.completions.create(
        model="longctx", messages=[{"role": "user", "content": "Who won the regatta?"}]
    )
    assert {*told.longctx["documents"]} == {"notes", "letter"}
    assert told.choices[0].message.annotations[0].url_citation.document == "letter"


def test_an_answer_may_be_short(served):
    told = served.openai.chat.completions.create(model=NOTES, messages=USER, max_tokens=1)
    assert (told.choices[0].finish_reason, told.usage.completion_tokens) == ("length", 1)
    told = served.openai.responses.create(model=NOTES, input=ASKED, max_output_tokens=1)
    assert (told.status, told.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    stream = served.openai.responses.create(
        model=NOTES, input=ASKED, max_output_tokens=1, stream=True
    )
    assert [event.type for event in stream][-1] == "response.incomplete"


def test_the_server_has_a_limit_of_its_own(serve):
    told = serve(max_new_tokens=1).openai.chat.completions.create(
        model=NOTES, messages=USER, max_completion_tokens=500
    )
    assert told.usage.completion_tokens == 1


def test_a_question_that_refers_back_is_put_behind_the_one_before(served, documents):
    before = [*USER, {"role": "assistant", "content": "58204"}]
    words = "Who knew it?"
    later = {"role": "user", "content": words}
    told = served.openai.chat.completions.create(model=NOTES, messages=[*before, later])
    earlier = (documents_exchange(),)
    expected = documents.document("notes").ask(words, before=earlier)
    assert told.longctx["continues"] == 1
    assert told.choices[0].message.content == expected.answer
    other = {"role": "user", "content": "From whom was the foghorn bought in 1911?"}
    told = served.openai.chat.completions.create(model=NOTES, messages=[*before, other])
    assert told.longctx["continues"] == 0


def documents_exchange():
    """The exchange of `before`."""
    from longctx import Exchange

    return Exchange(ASKED, "58204")


def test_what_changes_nothing_is_left_alone(served, alone):
    told = served.openai.chat.completions.create(
        model=NOTES,
        messages=[
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": [{"type": "text", "text": ASKED}]},
        ],
        n=1,
        tools=[],
        presence_penalty=0,
        response_format={"type": "text"},
        user="somebody",
        metadata={"a": "b"},
        temperature=0,
        extra_body={"a_field": {"of": "tomorrow"}},
    )
    assert told.choices[0].message.content == alone.answer


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}


@pytest.mark.parametrize(
    ("more", "param", "said"),
    [
        ({"n": 2}, "n", "cannot be used"),
        ({"tools": [TOOL]}, "tools", "cannot be used"),
        ({"tool_choice": "required"}, "tool_choice", "cannot be used"),
        ({"logprobs": True}, "logprobs", "cannot be used"),
        ({"presence_penalty": 0.5}, "presence_penalty", "cannot be used"),
        ({"response_format": SCHEMA}, "response_format.type", "plain text"),
        ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages.content", "only text"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.role", "must be system"),
        ({"messages": []}, "messages", "must end with a question"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages", "must end with"),
        ({"messages": ["x"]}, "messages", "list of objects"),
        ({"model": "gpt-5"}, "model", "must be 'longctx'"),
        ({"model": ""}, "model", "is missing"),
        ({"max_tokens": 0}, None, "cannot generate 0 tokens"),
        ({"max_tokens": "ten"}, "max_tokens", "must be a whole number"),
        ({"max_tokens": True}, "max_tokens", "must be a whole number"),
        ({"temperature": -1}, None, "cannot use temperature -1"),
        ({"stop": [1]}, "stop", "list of texts"),
        ({"stream": "yes"}, "stream", "must be a boolean"),
        ({"longctx": {"gather": 0}}, None, "cannot use gather 0"),
        ({"longctx": {"other": 1}}, "longctx.other", "is not known"),
        ({"longctx": {"gather_by": "luck"}}, None, "luck"),
    ],
)
def test_what_would_change_the_meaning_is_refused(served, more, param, said):
    body = {"model": NOTES, "messages": USER} | more
    response = served.http.post("/v1/chat/completions", json=body)
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["param"] == param
    assert said in error["message"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"previous_response_id": "resp_1"}, "cannot be used"),
        ({"background": True}, "cannot be used"),
        ({"text": {"format": {"type": "json_object"}}}, "plain text"),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "only messages"),
        ({"input": 5}, "must be a list"),
    ],
)
def test_responses_refuse_it_too(served, more, said):
    body = {"model": NOTES, "input": ASKED} | more
    response = served.http.post("/v1/responses", json=body)
    assert response.status_code == 400
    assert said in response.json()["error"]["message"]


def test_an_unknown_document_is_404(served):
    with pytest.raises(openai.NotFoundError, match="novel"):
        served.openai.chat.completions.create(model="longctx/novel", messages=USER)
    with pytest.raises(openai.NotFoundError, match="novel"):
        served.openai.responses.create(model="longctx/novel", input=ASKED, stream=True)


def test_what_the_text_seems_not_to_say_is_no_answer(served):
    asked = {"model": NOTES, "messages": [{"role": "user", "content": "Which ambassador signed?"}]}
    for anyway in (False, True):
        told = served.openai.chat.completions.create(
            **asked, extra_body={"longctx": {"anyway": anyway}}
        )
        assert told.longctx["found"] == "no"
        assert (told.choices[0].message.content == "not in the text") != anyway


def test_settings_of_our_own(served, documents):
    told = served.openai.chat.completions.create(
        model=NOTES, messages=USER, extra_body={"longctx": {"quote": False, "gather_by": "bm25"}}
    )
    expected = documents.document("notes").ask(ASKED, quote=False, gather_by="bm25")
    assert told.choices[0].message.content == expected.answer


def test_find_is_that_of_the_command(served, documents):
    body = {"model": "longctx/letter", "query": "marmalade", "k": 1}
    found = served.http.post("/v1/find", json=body).json()
    expected = documents.document("letter").find("marmalade", k=1).as_dict()
    assert found["passages"] == expected["passages"] != []
    assert found.keys() == expected.keys()
    both = served.http.post("/v1/find", json={"query": "", "regexp": "made from|bought"}).json()
    assert {passage["document"] for passage in both["passages"]} == {"letter", "notes"}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"query": "x", "k": 0}, 400),
        ({"query": "x", "k": 5000}, 400),
        ({"query": "x", "other": 1}, 400),
        ({"query": "x", "gather": 0}, 400),
        ({"regexp": "("}, 400),
        ({"query": "x", "model": "longctx/novel"}, 404),
    ],
)
def test_what_find_refuses(served, body, status):
    response = served.http.post("/v1/find", json=body)
    assert response.status_code == status
    assert response.json()["error"]["message"]


def test_what_is_counted(served):
    before = served.app.state.counts.tokens["answer"]
    told = served.openai.chat.completions.create(model=NOTES, messages=USER)
    text = served.http.get("/metrics").text
    assert f'tokens_total{{kind="answer"}} {before + told.usage.completion_tokens}' in text
    assert 'requests_total{path="/v1/chat/completions",status="200"}' in text
    assert 'seconds_total{kind="worked"}' in text
    assert "\nlongctx_waiting 0\n" in text
    assert served.http.get("/health").json() == {"status": "ok"}
