"""The page in a browser, headless Chromium: what people see, press and drop."""

import re
import shutil
import threading
import time

import pytest
from sample_files import docx, paragraph

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on this machine")

ARGUMENTS = [
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
]
ASKED = "What is the code of the oil-store padlock?"
PATIENCE = 100_000  # milliseconds
DROP = """([name, text]) => {
  const brought = new DataTransfer();
  brought.items.add(new File([text], name));
  for (const kind of ["dragenter", "dragover", "drop"]) {
    const event = new DragEvent(kind, { dataTransfer: brought, bubbles: true, cancelable: true });
    document.body.dispatchEvent(event);
  }
}"""


@pytest.fixture(scope="module")
def browser():
    """One browser for all tests here."""
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def opened(browser, changing):
    """Opens the page in a window of its own; nothing may go wrong in it that no test expects."""
    faults: list[str] = []
    contexts = []

    def watched(message) -> None:
        if message.type in ("error", "warning") and "status of" not in message.text:
            faults.append(message.text)

    def opened(address=changing.address, path="/", documents=True, **settings):
        context = browser.new_context(**{"viewport": {"width": 1360, "height": 860}, **settings})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", watched)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(address + path)
        if documents:
            page.wait_for_selector("#document-list button.item", state="attached")
        return page

    opened.faults = faults
    yield opened
    for context in contexts:
        context.close()
    assert not faults


@pytest.fixture
def clean(own_library, changing):
    """Deletes what a test has had read, once nothing is read any more."""
    before = {document.name for document in own_library}
    yield
    while changing.app.state.reading.running:
        time.sleep(0.05)
    own_library.remove(*({document.name for document in own_library} - before))


def until(page, condition: str) -> None:
    """Waits for what is to become true; Playwright's own way is what the page's policy forbids."""
    ends = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(condition):
        assert time.monotonic() < ends, condition
        page.wait_for_timeout(50)


def choose(page, name: str) -> None:
    named = page.locator(".name").get_by_text(name, exact=True)
    page.locator("#document-list button.item", has=named).click()
    sync_api.expect(page.locator("#reading-name")).to_have_text(name, timeout=PATIENCE)
    page.wait_for_selector("#text .row")


def ask(page, question: str) -> None:
    page.fill("#question", question)
    page.press("#question", "Enter")
    page.wait_for_selector(".exchange:last-child .below .hint")


def shown_line(page) -> int:
    """The number of the first line on the screen."""
    return page.evaluate(
        """() => {
          const top = document.querySelector('#text').getBoundingClientRect().top;
          const rows = [...document.querySelectorAll('#text .row')];
          const row = rows.find((one) => one.getBoundingClientRect().bottom > top + 1);
          return Number(row.querySelector('.place').textContent);
        }"""
    )


def test_a_mark_opens_its_passage_with_the_answer_highlighted(opened):
    page = opened()
    choose(page, "book")
    ask(page, ASKED)
    answer = page.locator(".exchange .answer")
    assert answer.inner_text() == "582041"  # and the mark
    mark = answer.locator("button.mark")
    assert mark.get_attribute("aria-label").endswith("book.txt:50")
    mark.click()
    page.wait_for_selector("#text .inside mark")
    assert page.locator("#text mark").all_inner_texts() == ["58204"]
    row = page.locator("#text .inside")
    assert row.locator(".place").inner_text() == "50"
    assert row.locator(".line").inner_text() == "The code of the oil-store padlock is 58204."
    assert shown_line(page) in range(20, 51)
    first = page.locator(".passages .item").first
    assert first.locator(".number").inner_text() == "1"
    assert first.locator(".told").inner_text() == "The code of the oil-store padlock is 58204."
    told = first.locator(".told")
    short = page.evaluate(
        "import('/static/ask.js').then((ask) => ask.short('\\n  a\\n\\n  b \\n'))"
    )
    told.evaluate("(told, short) => told.replaceChildren(short)", short)
    assert told.inner_text() == "  a\n\n  b"  # lines and indents as in the text


@pytest.mark.usefixtures("clean")
def test_a_place_that_is_not_a_line_is_shown_whole(opened, own_library, tmp_path):
    file = tmp_path / "minutes.docx"
    file.write_bytes(docx("".join(paragraph(f"The keeper wrote {i}.") for i in range(1, 41))))
    own_library.ingest(file, name="minutes")
    page = opened()
    choose(page, "minutes")
    last = page.locator("#text .place").nth(39)
    assert last.inner_text() == "paragraph 40"
    assert last.evaluate("one => one.scrollWidth <= one.clientWidth && one.clientHeight < 30")
    ask(page, "What did the keeper write?")
    assert page.locator("#status").inner_text() == "Answered, with 1 passage."


def test_each_sentence_of_an_answer_is_marked_with_what_has_its_words(opened):
    page = opened()
    texts = ["Öl 🌊: The boat was green.", " ", "Mr. Dahl cast the bell.", "Nobody knew."]
    place = {"document": "d", "source": "a", "end": 9}
    passages = [{**place, "start": i, "text": text} for i, text in enumerate(texts)]
    answer = {"passages": passages, "answer": "The boat was green."}
    run = "async (given) => { const cite = await import('/static/cite.js'); %s }"
    found = page.evaluate(run % "return cite.places(given)", answer)
    assert [place["text"] for place in found] == [texts[0], texts[2], texts[3]]
    assert [place["chars"] for place in found] == [
        {"byte": 0, "spans": [[6, 24]]},
        {"byte": 2, "spans": []},
        {"byte": 3, "spans": []},
    ]
    text = "The boat was green. Dahl cast the bell in 3.5 hours! Who knows?"
    parts = page.evaluate(run % f"return cite.parts({text!r}, given)", found)
    assert [part["text"] for part in parts] == [
        "The boat was green. ",
        "Dahl cast the bell in 3.5 hours! ",
        "Who knows?",
    ]
    assert [part["numbers"] for part in parts] == [[1], [], []]
    alone = page.evaluate(run % "return cite.parts('Yes', given)", found)
    assert alone == [{"text": "Yes", "numbers": [1]}]  # some mark there is always
    assert page.evaluate(run % "return cite.parts('', given)", found) == []


def test_the_strip_shows_where_the_scores_lie_and_a_click_goes_there(opened, book):
    page = opened()
    choose(page, "book")
    assert page.locator("#strip .scores").get_attribute("d") == ""
    ask(page, ASKED)
    until(page, "document.querySelector('#strip .scores').getAttribute('d') !== ''")
    drawn = page.locator("#strip .scores").get_attribute("d")
    bars = [
        (float(x), float(height)) for x, height in re.findall(r"M([\d.]+) 100v-([\d.]+)", drawn)
    ]
    highest = max(bars, key=lambda bar: bar[1])[0] / 1000
    assert abs(highest - book.index("58204") / len(book)) < 0.1
    strip = page.locator("#strip svg")
    box = strip.bounding_box()
    page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + 20)
    line = book[: int(0.9 * len(book))].count("\n") + 1
    place = "(document.querySelector('#text .here .place') || {}).textContent"
    until(page, f"Math.abs(Number({place}) - {line}) <= 1")  # another line was marked before
    assert shown_line(page) <= line + 1
    strip.focus()
    page.keyboard.press("Home")
    until(page, "document.querySelector('#text .here .place').textContent === '1'")
    page.keyboard.press("PageDown")  # to the first peak
    until(page, "document.querySelector('#text .here .place').textContent !== '1'")
    assert 30 < int(page.locator("#text .here .place").inner_text()) < 60
    assert re.match(r"\d+%, score ", strip.get_attribute("aria-valuetext"))


def test_the_text_goes_on_where_it_is_scrolled(opened):
    page = opened()
    choose(page, "book")
    assert page.locator("#text .row").count() < 80
    page.hover("#text")
    for _ in range(40):
        page.mouse.wheel(0, 2000)
        page.wait_for_timeout(50)
        if page.locator("#text .row").count() == 80:
            break
    numbers = page.locator("#text .place").all_inner_texts()
    assert numbers == [str(number) for number in range(1, 81)]


def test_text_that_looks_like_markup_is_shown_as_text(opened, marked_name):
    page = opened()
    choose(page, marked_name)
    text = page.locator("#text").inner_text()
    assert "<script>window.stolen = 1</script> and no more." in text
    assert '<img src="x" onerror="window.stolen = 1"> of a boat &amp; a gull.' in text
    page.fill("#query", "picture of a boat")
    page.wait_for_selector("#hits button.item")
    assert "<img src=" in page.locator("#hits").inner_text()
    ask(page, "What hung <b>below</b> the sign? <img src=x onerror='window.stolen = 1'>")
    assert "<b>below</b>" in page.locator(".exchange h3").inner_text()
    assert page.locator(".exchange .passages").inner_text().count("window.stolen") >= 1
    page.locator(".passages .item").first.click()
    page.wait_for_selector("#text .inside")
    made = "#text script, #text img, .exchange img, .exchange b, #hits img, #documents b"
    assert page.locator(made).count() == 0
    assert page.evaluate("window.stolen") is None


def test_the_policy_stops_scripts_that_are_not_the_page_s(opened):
    page = opened()
    blocked = page.evaluate(
        """() => new Promise((done) => {
          addEventListener('securitypolicyviolation', (event) => done(event.violatedDirective));
          const script = document.createElement('script');
          script.textContent = 'window.stolen = 1';
          document.body.append(script);
        })"""
    )
    assert blocked.startswith("script-src")
    assert page.evaluate("window.stolen") is None
    assert page.evaluate("fetch('https://example.invalid/').catch(() => 'refused')") == "refused"
    assert all("violates the" in fault for fault in opened.faults)
    opened.faults.clear()


def test_find_as_you_type(opened):
    page = opened()
    choose(page, "book")
    page.press("body", "f")
    page.keyboard.type("padlock lamp")
    page.wait_for_selector("#hits button.item mark")
    first = page.locator("#hits button.item").first
    assert first.locator("mark").all_inner_texts() == ["padlock"]
    assert first.locator(".cite").inner_text().endswith("book.txt:50")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    second = page.locator("#hits button.item").nth(1)
    assert second.evaluate("item => item === document.activeElement")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_selector("#text .inside mark")
    assert page.locator("#text .inside .place").inner_text() == "50"
    page.keyboard.press("Escape")
    assert page.locator("#hits").is_hidden()
    page.fill("#query", "")
    until(page, "document.querySelector('#strip .scores').getAttribute('d') === ''")


@pytest.mark.usefixtures("clean")
def test_a_file_that_is_dropped_is_read_and_asked(opened, own_library):
    page = opened()
    text = "The harbour bell was cast in 1888 by Dahl. It hangs at the quay.\n" * 40
    page.evaluate(DROP, ["bell book.txt", text])
    page.wait_for_selector("#readings progress")
    page.wait_for_selector("#document-list [aria-current]:has-text('bell book')")
    assert page.locator("#readings li").count() == 0
    assert page.locator("#drop").is_hidden()
    assert own_library.document("bell book").sources == ("bell book.txt",)
    until(page, "document.querySelector('#reading-name').textContent === 'bell book'")
    page.evaluate(DROP, ["bell book.txt", "Another bell."])
    page.wait_for_selector("#confirm-dialog[open]")
    page.locator("#confirm-yes").click()
    until(page, "document.querySelector('#text .line')?.textContent === 'Another bell.'")
    page.locator("#document-list li", has_text="bell book").hover()
    page.locator("#document-list li", has_text="bell book").locator(".remove").click()
    page.locator("#confirm-yes").click()
    until(page, "!document.querySelector('#document-list').textContent.includes('bell')")
    assert "bell book" not in own_library


def test_a_file_that_cannot_be_read_says_why(opened):
    page = opened()
    page.evaluate(DROP, ["picture.txt", "\0\1\2" * 500])
    page.wait_for_selector("#readings .problem")
    assert "'picture.txt': it is binary" in page.locator("#readings .problem").inner_text()
    page.locator("#readings .remove").click()
    assert page.locator("#readings li").count() == 0


@pytest.mark.usefixtures("clean")
def test_progress_says_how_long_it_will_take(opened):
    page = opened()
    text = "".join(
        f"Entry {i} of a log that is long enough to take a while.\n" for i in range(9000)
    )
    page.evaluate(DROP, ["long.log", text])
    until(
        page,
        r"/^reading: \d+%, [\d.]+ k?B of [\d.]+ kB, about .* left$/.test("
        "document.querySelector('#readings .hint')?.textContent)",
    )
    assert 0 < page.locator("#readings progress").evaluate("bar => bar.value") < 1
    page.locator("#readings .remove").click()
    assert page.locator("#readings li").count() == 0
    until(
        page,  # what it had read is kept, as of a stopped `longctx ingest`
        """async () => {
          const known = await (await fetch('/api/documents')).json();
          return known.some((one) => one.name === 'long' && one.status === 'reading');
        }""",
    )
    page.reload()
    page.wait_for_selector("#document-list :disabled:has-text('long')")


def test_keys(opened):
    page = opened()
    choose(page, "book")
    page.locator("#document-list button.item").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    current = page.locator("#document-list [aria-current]")
    assert current.count() == 1
    assert current.evaluate("item => item === document.activeElement")
    page.keyboard.press("/")
    assert page.locator("#question").evaluate("box => box === document.activeElement")
    page.keyboard.type("a/?f")  # while somebody writes, keys are letters
    assert page.input_value("#question") == "a/?f"
    page.keyboard.press("Shift+Enter")
    assert page.input_value("#question") == "a/?f\n"
    page.locator("#reader h2").click()
    page.keyboard.press("?")
    assert page.locator("#keys-dialog").is_visible()
    page.keyboard.press("Escape")
    assert page.locator("#keys-dialog").is_hidden()


def test_an_answer_can_be_stopped(opened, changing):
    page = opened()
    choose(page, "book")
    go, begun = threading.Event(), threading.Event()

    def busy() -> None:
        begun.set()
        go.wait(100)

    queue = changing.app.state.work._thread  # nobody is answered while this waits
    waiting = queue.submit(busy)
    assert begun.wait(100)
    try:
        page.fill("#question", ASKED)
        page.click("#send")
        page.wait_for_selector(".exchange .waiting")
        page.click("#stop")
        page.wait_for_selector(".exchange .problem")
        assert page.locator(".exchange .problem").inner_text() == "Stopped."
        assert page.input_value("#question") == ASKED
    finally:
        go.set()
        waiting.result(100)
    page.press("#question", "Enter")
    page.wait_for_selector(".exchange:last-child .passages")


def test_a_question_goes_on_from_the_last_answer(opened):
    page = opened()
    choose(page, "book")
    assert page.locator("#go-on").is_hidden()
    ask(page, "Where is the padlock?")
    page.check("#before")
    with page.expect_request("**/api/ask") as asked:
        ask(page, "What is its code?")
    before = asked.value.post_data_json["before"]
    assert [one["question"] for one in before] == ["Where is the padlock?"]


def test_all_documents_are_asked_together(opened):
    page = opened()
    page.locator("#document-list button.item", has_text="All documents").click()
    ask(page, ASKED)
    page.locator(".passages .item").first.click()
    page.wait_for_selector("#text .inside mark")
    assert page.locator("#reading-name").inner_text() == "book"


def test_an_address_opens_its_place(opened, changing, own_library, book):
    source = own_library["book"].sources[0]
    start = book.index("58204")
    place = f"/#document=book&source={source}&start={start}&end={start + 5}"
    page = opened(path=place)
    page.wait_for_selector("#text .inside")
    assert page.locator("#text .inside .place").inner_text() == "50"


def test_a_phone_shows_one_thing_at_a_time(opened):
    page = opened(viewport={"width": 390, "height": 780}, has_touch=True)
    assert page.locator("#documents").is_hidden()
    page.click("#open-documents")
    assert page.locator("#conversation").is_hidden()
    page.locator("#document-list button.item", has_text="book").click()
    assert page.locator("#documents").is_hidden()
    assert page.locator("#reader").is_hidden()
    ask(page, ASKED)
    mark = page.locator(".exchange button.mark")
    mark.click()
    page.wait_for_selector("#text .inside mark")
    assert page.locator("#reader").bounding_box()["width"] == 390
    wide = "document.documentElement.scrollWidth"
    assert page.evaluate(wide) == 390
    page.keyboard.press("Escape")
    assert page.locator("#reader").is_hidden()
    assert mark.evaluate("mark => mark === document.activeElement")
    assert page.evaluate(wide) == 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_can_be_read_by_day_and_by_night(opened, scheme):
    page = opened(color_scheme=scheme)
    choose(page, "book")
    ask(page, ASKED)
    page.locator(".exchange button.mark").click()
    page.wait_for_selector("#text .inside mark")
    poor = page.evaluate(CONTRAST)
    assert poor == []
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", light)[:3])) > 384) == (scheme == "light")


CONTRAST = """() => {
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (colour) => {
    const [r, g, b] = numbers(colour).map((part) => {
      const share = part / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if ((numbers(colour)[3] ?? 1) === 1) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const poor = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const seen = { visibilityProperty: true, opacityProperty: true };
    if (!own || !element.checkVisibility(seen)) continue;
    const [a, b] = [light(getComputedStyle(element).color), light(ground(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${element.tagName}.${element.className}: ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


def test_a_token_is_asked_for_and_stays_out_of_the_address(opened, serve):
    token = "a-token-of-some-length"
    served = serve(token=token)
    page = opened(address=served.address, documents=False)
    page.wait_for_selector("#token-dialog[open]")
    page.fill("#token", "not-the-right-token")
    page.press("#token", "Enter")
    page.wait_for_selector("#token-wrong:visible")
    page.fill("#token", token)
    page.press("#token", "Enter")
    page.wait_for_selector("#document-list button.item:has-text('notes')")
    assert token not in page.url
    assert page.evaluate("sessionStorage.getItem('longctx-token')") == token
    assert page.evaluate("document.cookie + Object.keys(localStorage).join()") == ""
    page.reload()
    page.wait_for_selector("#document-list button.item:has-text('notes')")


def test_an_empty_library_says_what_to_do(opened, empty):
    page = opened(address=empty.address, documents=False)
    until(page, "document.querySelector('#welcome').textContent !== ''")
    assert "Drop a file on this page" in page.locator("#welcome").inner_text()
    assert page.locator("#send").is_disabled()
