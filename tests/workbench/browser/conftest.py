from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from support.workbench import Served
from support.workbench_page import DESKTOP, Workbench, open_browser

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser for all tests of a module, which may ask no other host for anything."""
    with open_browser() as (opened, hosts):
        yield opened
        assert hosts == set()


@pytest.fixture
def tab(browser: Browser, bench: Served) -> Iterator[Workbench]:
    """The page of the module's ``bench``; it may report no problem."""
    with browser.new_context(viewport=DESKTOP) as context:
        opened = Workbench.open(context, bench.access.address)
        yield opened
        assert opened.problems == []
