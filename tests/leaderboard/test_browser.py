"""The board's page in headless Chromium: it sorts, filters, draws, and complains of nothing."""

import shutil
from pathlib import Path

import pytest

from pacer_gym.leaderboard.board_reading import read_board
from pacer_gym.leaderboard.page import board_page
from tests.leaderboard.made_results import frozen_sha256, made_submission

webdriver = pytest.importorskip(
    "selenium.webdriver", reason="drives the browser: pip install pacer-gym[test]"
)

BROWSER, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="chromium and chromedriver are not installed: apt-get install chromium chromium-driver",
)

FAMILIES = ("heuristic", "learned", "hybrid")
# More entries than colours, so that lines of one colour are dashed.
STRENGTHS = (1.0, 0.97, 0.93, 0.9, 0.86, 0.8, 0.7, 0.6, 0.5)
HOSTILE = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


def made_board(folder: Path) -> None:
    for k, strength in enumerate(STRENGTHS):
        made_submission(
            folder,
            f"entry-{k}",
            strength=strength,
            strengths={"bursty": strength * (1.1 if k % 2 else 0.95)},
            family=FAMILIES[k % 3],
            tuning=["budget_tokens"] if k == 2 else [],
            verdict=None if k == 3 else "verified",
            decision_us=None if k == 4 else 40.0 - 4.0 * k,
        )
    made_submission(folder, "rough", setting="quick", strength=0.9, verdict=None, description=HOSTILE)
    made_submission(
        folder,
        "cheat",
        strength=3.0,
        family="learned",
        disqualified=f"It read the clock of the simulator. {HOSTILE}",
    )


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("board")
    made_board(folder)
    page = folder / "index.html"
    page.write_bytes(board_page(read_board(folder, suites={"cpu": frozen_sha256()})).encode())
    return page.as_uri()


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking"):
        options.add_argument(flag)
    options.add_argument("--disable-dev-shm-usage")
    options.add_argument("--force-prefers-reduced-motion")  # else a click may meet a page that still scrolls
    options.add_argument("--window-size=1280,900")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, address):
    browser.get("about:blank")
    browser.get(address)
    browser.execute_script("localStorage.clear()")
    browser.get("about:blank")
    browser.get(address)
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []


def wait_until(page, script, wanted):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(page, 20).until(lambda driver: driver.execute_script(f"return {script}") == wanted)


NAMES = "[...document.querySelectorAll('tbody.ranked tr:not([hidden])')].map(row => row.id)"
OTHERS = "[...document.querySelectorAll('tbody.others tr:not([hidden])')].map(row => row.id)"


def head(page, label):
    (found,) = (
        button
        for button in page.find_elements("css selector", ".board thead button")
        if button.text.replace("\n", " ").startswith(label)
    )
    return found


def press(page, element, key):
    page.execute_script("arguments[0].focus()", element)
    from selenium.webdriver import ActionChains

    ActionChains(page).send_keys(key).perform()


def column(page, k):
    rows = "[...document.querySelectorAll('tbody.ranked tr')]"
    return page.execute_script(f"return {rows}.map(row => row.cells[arguments[0]].dataset.sort)", k)


def test_it_fetches_nothing_and_runs_nothing_of_an_entry(page):
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert page.execute_script("return window.hacked") is None
    assert "window.hacked = 1" in page.page_source


def test_an_empty_board_is_a_page_like_any_other(page, tmp_path):
    empty = tmp_path / "index.html"
    empty.write_bytes(board_page([]).encode())
    page.get(empty.as_uri())
    assert "Nothing has been scored yet" in page.find_element("tag name", "main").text
    page.find_element("id", "At.theme").click()


def test_a_column_sorts_both_ways_with_unknown_values_last(page):
    from selenium.webdriver.common.keys import Keys

    before = page.execute_script(f"return {NAMES}")
    button = head(page, "Decision")
    press(page, button, Keys.ENTER)  # low is good here, so upwards first
    wait_until(page, f"{NAMES}[0]", "entry-8")
    values = [float(value) for value in column(page, 15)[:-1]]
    assert values == sorted(values)
    assert column(page, 15)[-1] == ""
    assert page.execute_script("return document.querySelectorAll('.board [aria-sort]').length") == 1
    press(page, button, Keys.SPACE)
    wait_until(page, f"{NAMES}[0]", "entry-0")
    assert column(page, 15)[-1] == ""
    assert page.execute_script("return document.querySelector('.board [aria-sort]').ariaSort") == "descending"
    assert page.execute_script(f"return {OTHERS}") == ["rough", "cheat"]
    press(page, head(page, "Rank"), Keys.ENTER)
    wait_until(page, NAMES, before)


def test_a_click_on_a_capacity_brings_the_best_to_the_top(page):
    button = head(page, "bursty")
    page.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", button)
    button.click()
    wait_until(page, f"{NAMES}[0]", "entry-1")
    values = [float(value) for value in column(page, 7)]
    assert values == sorted(values, reverse=True)


def test_a_family_is_filtered_and_counted(page):
    from selenium.webdriver.support.ui import Select

    Select(page.find_element("id", "At.family")).select_by_value("learned")
    assert page.execute_script(f"return {NAMES}") == ["entry-1", "entry-4", "entry-7"]
    assert page.execute_script(f"return {OTHERS}") == ["cheat"]
    assert page.find_element("id", "At.shown").text == "4 of 11 entries"
    labels = page.execute_script(
        "return [...document.querySelectorAll('.choices label')].map(l => l.innerText)"
    )
    assert labels == ["entry-1", "entry-4", "entry-7", "cheat (not ranked)"]
    Select(page.find_element("id", "At.family")).select_by_value("hybrid")
    assert not page.find_element("class name", "divider").is_displayed()


DRAWN = """
const canvas = document.querySelectorAll('.plot canvas')[arguments[0]];
const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
const colors = new Set();
let drawn = 0;
for (let k = 0; k < pixels.length; k += 4) {
  if (pixels[k + 3] > 200) { drawn += 1; colors.add(pixels[k] + ',' + pixels[k + 1] + ',' + pixels[k + 2]); }
}
return [drawn / (canvas.width * canvas.height), colors.size];
"""


@pytest.mark.parametrize("k", [0, 1])
def test_both_charts_are_drawn_in_many_colors(page, k):
    wait_until(page, "document.querySelectorAll('.plot canvas').length", 2)
    share, colors = page.execute_script(DRAWN, k)
    assert 0.01 < share < 0.5
    assert colors > 7


def test_a_chart_follows_its_scenario_and_the_chosen_entries_and_has_words(page):
    from selenium.webdriver.support.ui import Select

    chart = page.find_element("css selector", "[data-chart=curves]")
    told = "document.querySelector('[data-chart=curves] .plot').getAttribute('aria-label')"
    assert "poisson-tight: 7 entries; the most is carried by entry-0" in page.execute_script(f"return {told}")
    before = page.execute_script("return document.querySelector('.plot canvas').toDataURL()")
    Select(chart.find_element("tag name", "select")).select_by_visible_text("azure-code")
    assert "azure-code" in page.execute_script(f"return {told}")
    assert page.execute_script("return document.querySelector('.plot canvas').toDataURL()") != before
    rows = "document.querySelectorAll('[data-chart=curves] .numbers tbody tr').length"
    assert page.execute_script(f"return {rows}") == 7 * 11
    page.find_element("css selector", "[data-pick=none]").click()
    assert "0 entries" in page.execute_script(f"return {told}")
    assert page.execute_script(f"return {rows}") == 0
    page.find_element("css selector", "[data-pick=all]").click()
    assert "11 entries" in page.execute_script(f"return {told}")


def test_a_permalink_marks_its_row_and_lifts_a_filter_that_hides_it(page, address):
    from selenium.webdriver.support.ui import Select

    Select(page.find_element("id", "At.family")).select_by_value("learned")
    page.execute_script("location.hash = '#entry-8'")
    marked = "[...document.querySelectorAll('tr[aria-current]')].map(row => row.id)"
    wait_until(page, marked, ["entry-8"])
    assert page.execute_script("return document.getElementById('At.family').value") == ""
    row = page.find_element("id", "entry-8")
    assert row.is_displayed()
    page.get("about:blank")
    page.get(f"{address}#cheat")
    wait_until(page, marked, ["cheat"])
    top = page.execute_script("return document.getElementById('cheat').getBoundingClientRect().top")
    assert 0 <= top < page.execute_script("return innerHeight")
    color = "getComputedStyle(document.getElementById(arguments[0]).cells[2]).backgroundColor"
    assert page.execute_script(f"return {color}", "cheat") != page.execute_script(f"return {color}", "rough")


def test_a_name_opens_what_is_known_of_the_entry(page):
    page.execute_script("document.querySelector('#entry-2 a').click()")
    wait_until(page, "document.getElementById('About.entry-2').open", True)
    text = page.find_element("id", "About.entry-2").text
    assert "budget_tokens, on development seeds, over 16 to 512; cost: 2 minutes" in text
    assert "12 of 12 runs came out the same to the last bit" in text


def test_an_unknown_or_broken_permalink_does_nothing(page):
    for name in ("nobody", "%E0%A4%A", "At.main"):
        page.execute_script("location.hash = arguments[0]", name)
    assert page.execute_script("return document.querySelectorAll('.picked').length") == 0


def test_the_theme_is_the_systems_until_one_is_chosen(page, address):
    background = "return getComputedStyle(document.body).backgroundColor"
    light = page.execute_script(background)
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    try:
        dark = page.execute_script(background)
        assert dark != light
        button = page.find_element("id", "At.theme")
        wait_until(page, "document.getElementById('At.theme').textContent", "Light theme")
        button.click()
        assert page.execute_script(background) == light
        page.get("about:blank")
        page.get(address)
        assert page.execute_script(background) == light
    finally:
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_on_a_phone_only_the_table_scrolls_and_the_names_stay(page):
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        wait_until(page, "innerWidth", 390)
        assert page.execute_script("return document.documentElement.scrollWidth") == 390
        page.execute_script("document.querySelector('.scroll').scrollLeft = 500")
        left = page.execute_script(
            "return document.querySelector('#entry-0 .name').getBoundingClientRect().left"
        )
        assert 0 <= left < 40
        width = "document.querySelector('.plot canvas').getBoundingClientRect().width <= 366"
        wait_until(page, width, True)
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_keyboard_reaches_the_table_first(page):
    from selenium.webdriver.common.keys import Keys

    page.find_element("tag name", "body").send_keys(Keys.TAB)
    skip = page.switch_to.active_element
    assert skip.text == "Skip to the table"
    skip.send_keys(Keys.ENTER)
    wait_until(page, "document.activeElement.id", "At.main")
