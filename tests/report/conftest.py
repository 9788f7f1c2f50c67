"""The pages of the tests, rendered once, and the browser that opens them."""

from __future__ import annotations

from functools import cache
from unittest import mock

import browser
import pytest
from cases import DRAWN, diagnoses

from cls_analysis import compute_profile, diagnose, load_texts
from cls_analysis.diagnosis import Limits
from cls_analysis.report import page


@pytest.fixture(scope="session")
def page_of():
    """Gives the page of a report by its name in ``cases.MAKERS``."""

    @cache
    def make(name: str) -> str:
        names = page.CAPTIONS if name in DRAWN else ("mean", "layers")
        with mock.patch.object(page, "CAPTIONS", {name: page.CAPTIONS[name] for name in names}):
            return page.render_page(diagnoses(name), Limits())

    return make


@pytest.fixture(scope="session")
def embedded_page(embedded):
    """The page of the real thing: six layers of 384 dimensions on a bundled sample."""
    texts = load_texts("sample:sentiment", limit=24)
    return page.render_page([diagnose(compute_profile(embedded, texts, layers=[0, 3, 6]), intervals=False)], Limits())


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a browser; without one the tests skip, or fail where they must not."""
    return browser.browser_or_skip()
