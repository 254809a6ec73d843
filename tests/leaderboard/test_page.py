"""The board's page as text: whole, safe, and the same for the same entries."""

import hashlib
import json
import re
from base64 import b64encode
from html.parser import HTMLParser
from importlib.resources import files

import pytest

from pacer_gym.leaderboard.board_reading import read_board
from pacer_gym.leaderboard.page import board_page
from pacer_gym.leaderboard.suite import DRIFT, ROBUST, TIERS
from tests.leaderboard.made_results import frozen_sha256, made_results, made_submission

VOID = {"meta", "link", "br", "input", "hr", "img"}
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=alert(1)>&\"'"


class Page(HTMLParser):
    """A page taken apart, which complains about elements that are not closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.texts, self.ids = [], [], {}, []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        if "id" in attributes:
            self.ids.append(attributes["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def page_of(folder):
    return board_page(read_board(folder, suites={"cpu": frozen_sha256()}))


@pytest.fixture
def folder(tmp_path):
    made_submission(tmp_path, "best")
    made_submission(tmp_path, "second", strength=0.9, tuning=["budget_tokens"], family="learned")
    made_submission(tmp_path, "rough", setting="quick", verdict=None)
    return tmp_path


def data_of(text):
    found = re.search(r'<script type="application/json" id="At.data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found[1])


def test_elements_are_closed_and_ids_are_unique(folder):
    page = Page(page_of(folder))
    assert len(set(page.ids)) == len(page.ids)
    assert {"best", "second", "rough", "About.best"} <= set(page.ids)


def test_every_column_and_row_is_there(folder):
    text = page_of(folder)
    page = Page(text)
    columns = 8 + len(ROBUST) + len(DRIFT) + len(TIERS)
    assert sum("data-first" in attributes for attributes in page.all("th")) == columns
    rows = re.findall(r'<tr id="(.*?)".*?</tr>', text, re.DOTALL)
    assert rows == ["best", "second", "rough"]
    for row in re.findall(r"<tr id=.*?</tr>", text, re.DOTALL):
        assert row.count("<td") + row.count("<th") == columns
    assert "tuned" in text
    assert "2026-01-02" in text
    assert "quick setting" in text


def test_nothing_is_fetched(folder):
    page = Page(page_of(folder))
    assert all("src" not in attributes for _, attributes in page.elements)
    assert [attributes["href"] for attributes in page.all("link")] == ["data:,"]
    assert all("style" not in attributes for _, attributes in page.elements)
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert "@import" not in "".join(page.texts["style"])
    assert "url(" not in "".join(page.texts["style"])


def test_the_policy_names_the_hash_of_every_script_and_style_and_nothing_else(folder):
    text = page_of(folder)
    (policy,) = (
        attributes["content"] for attributes in Page(text).all("meta") if attributes.get("http-equiv")
    )
    contents = re.findall(r"<style>(.*?)</style>|<script>(.*?)</script>", text, re.DOTALL)
    hashes = {
        "sha256-" + b64encode(hashlib.sha256((style or script).encode()).digest()).decode()
        for style, script in contents
    }
    assert len(hashes) == 4
    assert set(re.findall(r"'(sha256-.*?)'", policy)) == hashes
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_what_a_submission_says_never_becomes_markup(tmp_path):
    results = made_results(name="evil")
    results["scenarios"]["bursty"]["failures"] = [{"rate_rps": 1.0, "seed": 3, "why": HOSTILE}]
    made_submission(
        tmp_path,
        "evil",
        authors=[HOSTILE],
        description=HOSTILE,
        source="javascript:alert(1)",
        disqualified=HOSTILE,
        results=results,
    )
    text = page_of(tmp_path)
    page = Page(text)
    assert "window.hacked" not in "".join(page.texts["script"])
    assert len(page.all("script")) == 4
    assert page.all("img") == []
    assert HOSTILE in page.texts["dd"]
    assert not any(attributes["href"].startswith("javascript") for attributes in page.all("a"))


def test_text_inside_the_data_cannot_end_its_element(tmp_path):
    made_submission(tmp_path, "mine", family="learned")
    (board,) = read_board(tmp_path, suites={"cpu": frozen_sha256()})
    object.__setattr__(board.entries[0].submission, "family", HOSTILE)
    text = board_page([board])
    assert data_of(text)[0]["entries"][0]["family"] == HOSTILE
    assert len(Page(text).all("script")) == 4


@pytest.mark.parametrize("source", ["https://example.org/a?b=1&c=2", "http://example.org"])
def test_a_source_that_is_an_address_is_a_link(tmp_path, source):
    made_submission(tmp_path, "mine", source=source)
    links = [attributes for attributes in Page(page_of(tmp_path)).all("a") if attributes["href"] == source]
    assert [link["rel"] for link in links] == ["noopener noreferrer nofollow"]


def test_curves_hold_mean_worst_and_best_seed_in_percent(tmp_path):
    results = made_results()
    results["scenarios"]["bursty"] |= {
        "curve": {"rates_rps": [1.0, 2.0], "seeds": [0, 1], "attainment": [[1.0, 0.9], [None, 0.5]]},
        "coarse_curve": {"rates_rps": [2.0, 4.0], "seeds": [0], "attainment": [[0.7], [0.1]]},
        "interval_rps": [1.1, None],
        "capacity_rps": 1.2,
    }
    made_submission(tmp_path, "mine", results=results)
    curve = data_of(page_of(tmp_path))[0]["entries"][0]["curves"]["bursty"]
    # At 2 requests/s the finer curve counts, of which one seed was judged.
    assert curve["points"] == [
        [1.0, 95.0, 90.0, 100.0, 2],
        [2.0, 50.0, 50.0, 50.0, 1],
        [4.0, 10.0, 10.0, 10.0, 1],
    ]
    assert (curve["capacity"], curve["interval"]) == (1.2, [1.1, None])


def test_the_middle_third_is_shaded_but_where_seeds_differ(folder):
    drift = data_of(page_of(folder))[0]["drift"]
    assert drift == {"drift-step": [220.0, 440.0], "drift-ramp": [220.0, 440.0], "drift-cotenant": []}


def test_an_open_or_missing_end_of_an_interval_is_shown(tmp_path):
    results = made_results()
    results["scenarios"]["bursty"] |= {"capacity_rps": 8.0, "interval_rps": [7.5, None], "beyond_range": True}
    made_submission(tmp_path, "mine", results=results)
    text = page_of(tmp_path)
    assert "&gt; 8.00" in text
    assert "from 7.50" in text
    assert "even the highest rate of the range passed" in text


def test_a_reader_is_told_what_to_doubt(tmp_path):
    results = made_results()
    results["scenarios"]["bursty"] |= {"non_monotone": True, "is_stable": False}
    results["scenarios"]["tiers"]["failures"] = [{"rate_rps": 2.0, "seed": 3, "why": "it returned nothing"}]
    made_submission(tmp_path, "mine", results=results)
    told = "".join(Page(page_of(tmp_path)).texts["li"])
    assert "bursty: some rate is served better than a lower one" in told
    assert "bursty: the backlog still grows" in told
    assert "tiers: 1 run(s) failed, the first at 2.00 requests/s with seed 3: it returned nothing" in told


def test_an_empty_board_has_a_page_that_says_so():
    text = board_page([])
    Page(text)
    assert "Nothing has been scored yet" in text
    assert data_of(text) == []


def test_the_same_entries_give_the_same_page(folder):
    assert page_of(folder) == page_of(folder)


def test_vendored_libraries_come_with_their_licences():
    vendor = files("pacer_gym.leaderboard").joinpath("page", "vendor")
    text = board_page([])
    assert "Leon Sorokin" in vendor.joinpath("uPlot.LICENSE").read_text(encoding="utf-8")
    assert "Leon Sorokin" in text
    assert "public domain" in text
