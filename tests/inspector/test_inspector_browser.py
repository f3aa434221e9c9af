"""The inspector in a real browser: it opens, filters, draws and can be read by all; nothing is
logged or leaves the machine.
"""

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from parts.inspected import HOSTILE, SHOWN, base, browser  # noqa: F401  (fixtures)

from langchain_lookup_knowledge.integrations.cli import main

pytestmark = pytest.mark.browser
FLAGS = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run
--disable-background-networking --disable-component-update --disable-sync""".split()
PAGES = {
    "overview": "/",
    "lookups": "/lookups",
    "nothing": "/lookups?text=nowhere",
    "hostile": "/lookup?id=i0001",
    "bare": "/lookup?id=i0003",
    "gaps": "/gaps",
    "read": "/lookup?id=read",
    "reads": "/lookups?calls=reads",
    "try": "/try?query=refund+and+vpn",
    "compare": "/try?query=refund+and+vpn&compare=yes&k_2=1&l1_2=off",
    "message": "/lookup?id=nothing",
}


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium")
    if not program:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as driver:
        folder = tmp_path_factory.mktemp("profile")
        context = driver.chromium.launch_persistent_context(
            folder, executable_path=program, args=FLAGS
        )
        yield context
        context.close()


@pytest.fixture
def page(chromium, browser):
    """A page that fails the test if anything is logged, or asked of another host."""
    opened = chromium.new_page()
    logged, asked = [], []
    opened.on("console", lambda message: logged.append(message.text))
    opened.on("pageerror", lambda error: logged.append(str(error)))
    opened.on("dialog", lambda dialog: logged.append(dialog.message))
    opened.on("request", lambda request: asked.append(urlsplit(request.url)))
    opened.address = f"http://{browser.place.netloc}"
    yield opened
    opened.close()
    assert [text for text in logged if "404 (Not Found)" not in text] == []
    assert {place.netloc for place in asked if place.scheme not in ("data", "file")} <= {
        browser.place.netloc
    }
    assert {place.scheme for place in asked} <= {"http", "data", "file"}


def problems(page):
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        (problem["id"], problem["impact"], [node["html"][:200] for node in problem["nodes"]])
        for problem in found
    ]


def too_wide(page):
    return page.evaluate("document.documentElement.scrollWidth > window.innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_every_page_opens_and_can_be_read_by_all(page, name, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(page.address + PAGES[name])
    assert page.locator("h1").count() == 1
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert problems(page) == []
    assert (
        page.evaluate("getComputedStyle(document.body).backgroundColor")
        == {
            "light": "rgb(255, 255, 255)",
            "dark": "rgb(20, 23, 27)",
        }[scheme]
    )


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_pages_fit_every_screen(page, name, width):
    page.set_viewport_size({"width": width, "height": 700})
    page.goto(page.address + PAGES[name])
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert not too_wide(page)
    cut = "all => all.filter(one => one.scrollWidth > one.clientWidth + 1).length"
    if width == 360:
        assert (
            page.locator(".table:not(:has(table:not(.cards))), .match, .gap").evaluate_all(cut) == 0
        )


def test_filters_narrow_the_list(page):
    page.goto(page.address + "/lookups")
    assert page.locator("tbody tr").count() == 14
    page.get_by_text("More filters").click()
    page.get_by_label("Status").select_option("degraded")
    page.get_by_label("Thread").fill("failing")
    page.get_by_role("button", name="Show").click()
    assert page.locator("tbody tr").count() == 2
    assert page.get_by_label("Status").input_value() == "degraded"
    page.get_by_label("Text").fill("VPN")
    page.get_by_label("Text").press("Enter")
    assert page.locator("tbody th").all_inner_texts() == ["install the vpn"]
    page.get_by_label("From").fill("2000-01-01")
    page.get_by_label("to", exact=True).fill("2000-01-02")
    page.get_by_role("button", name="Show").click()
    assert page.get_by_text("No lookup matches.").is_visible()


def test_a_lookup_is_drawn(page):
    page.goto(page.address + "/lookups?text=refund+and&layer=L0%2BL1")
    page.get_by_role("link", name="refund and parental leave").click()
    assert page.locator(".asked mark").all_inner_texts() == ["refund", "parental leave"]
    assert page.locator(".answer").inner_text().startswith("Found in ")
    assert page.locator(".match").count() == 2
    for layer in ("meaning", "words", "hints"):
        assert page.locator(".match").first.get_by_text(layer, exact=True).is_visible()
    assert page.locator(".match blockquote mark").count() >= 2
    assert not page.get_by_text("merge_with_fallback").is_visible()
    page.get_by_text("Time of each step").click()
    assert page.locator("table.shares .bar rect").count() == 5
    page.get_by_role("link", name="Run again").click()
    assert page.get_by_text("The answer is as it was.").is_visible()


def test_an_answer_is_called_right_by_a_button(page):
    page.goto(page.address + "/lookups?text=refund+and&layer=L0%2BL1")
    page.get_by_role("link", name="refund and parental leave").click()
    page.get_by_label("Note").fill("as it should be")
    page.get_by_role("button", name="Right").click()
    assert page.get_by_text("Called right on").is_visible()
    assert page.get_by_label("Note").input_value() == "as it should be"
    page.goto(page.address + "/")
    page.get_by_role("link", name="100\u202f%", exact=True).click()
    assert page.locator("tbody tr").count() == 1


def test_patterns_are_painted_and_not_only_colours(page):
    page.goto(page.address + "/")
    fills = page.locator(".legend .swatch rect").evaluate_all(
        "all => all.map(one => getComputedStyle(one).fill)"
    )
    assert len(set(fills[:4])) == 4
    assert {'url("#stripes")', 'url("#dots")', 'url("#cross")'} <= set(fills)


def test_what_was_recorded_is_shown_as_text(page):
    for path in ("/lookups", "/lookup?id=i0001", "/gaps"):
        page.goto(page.address + path)
        assert page.locator("main script, main img").count() == 0
        assert page.get_by_text("<script>alert(1)</script>").first.is_visible()
        assert page.get_by_text(SHOWN[:10]).first.is_visible()
    page.goto(f"{page.address}/lookups")
    page.get_by_label("Text").fill(HOSTILE[:25])
    page.get_by_role("button", name="Show").click()
    assert page.locator("tbody tr").count() == 3


def test_the_keyboard_is_enough(page):
    page.goto(page.address + "/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "since"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_opens_from_a_file(page, base, tmp_path, scheme):
    out = Path(tmp_path / "report.html")
    assert main(["report", str(base), "--out", str(out)]) == 0
    page.emulate_media(color_scheme=scheme)
    page.goto(out.as_uri())
    assert page.get_by_text("What the model got").count() == 9  # the others found nothing
    assert page.evaluate("getComputedStyle(document.querySelector('main')).maxWidth") != "none"
    assert problems(page) == []
    page.get_by_role("link", name="install the vpn").first.click()
    assert page.evaluate("document.querySelector(':target').textContent").startswith("Lookup")
