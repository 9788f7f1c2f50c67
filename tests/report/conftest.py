"""The pages of the tests, rendered once, and the browser that opens them."""

from __future__ import annotations

import os
from functools import cache

import browser
import pytest
from cases import diagnoses

from cls_analysis import compute_profile, diagnose, load_texts
from cls_analysis.diagnosis import Limits
from cls_analysis.report.page import render_page


@pytest.fixture(scope="session")
def page_of():
    """Gives the page of a report by its name in ``cases.MAKERS``."""
    return cache(lambda name: render_page(diagnoses(name), Limits()))


@pytest.fixture(scope="session")
def embedded_page(embedded):
    """The page of the real thing: six layers of 384 dimensions on a bundled sample."""
    texts = load_texts("sample:sentiment", first=60)
    return render_page([diagnose(compute_profile(embedded, texts), intervals=False)], Limits())


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of a browser; without one the tests skip, or fail where they must not."""
    path = browser.find_browser()
    if path is None:
        reason = f"no browser to open the report in: none of {', '.join(browser.NAMES)} is installed"
        if os.environ.get("CLS_ANALYSIS_REQUIRE_BROWSER") == "1":
            pytest.fail(f"{reason}, and CLS_ANALYSIS_REQUIRE_BROWSER=1 (Debian: apt-get install chromium)")
        pytest.skip(f"{reason} (Debian: apt-get install chromium)")
    return path
