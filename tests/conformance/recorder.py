"""The conftest of scripts/conformance.sh: counts the tests that really tried our models, and compares the list.

Many of the common tests pass for any model, since they are about images, sound or mixtures of experts and look only
at the class. A pass is counted where the test built at least one of our models and skipped no part of itself.
"""

import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from transformers import PreTrainedModel


PINNED = Path(os.environ["CONFORMANCE_PINNED"])
PASSED = Path(os.environ["CONFORMANCE_PASSED"])


class Recorder:
    """Collects what became of each test, under its class's and its own name."""

    def __init__(self) -> None:
        self.built_models: set[str] = set()
        self.outcomes: dict[str, str] = {}
        self.skip_reasons: dict[str, str] = {}
        self.is_partial = False

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Notes that not all tests are run (`-k`), so that none is missed."""
        self.is_partial = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Notes whether the test builds a model of the classes under test."""
        init = PreTrainedModel.__init__

        @functools.wraps(init)
        def noting_init(model: PreTrainedModel, *args: Any, **kwargs: Any) -> None:
            if isinstance(model, item.cls.all_model_classes):  # type: ignore[attr-defined]
                self.built_models.add(_name(item.nodeid))
            init(model, *args, **kwargs)

        with mock.patch.object(PreTrainedModel, "__init__", noting_init):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the worst outcome of a test's phases and subtests: to pytest, a test of skipped subtests passed."""
        name = _name(report.nodeid)
        ranks = ["passed", "skipped", "failed"]
        self.outcomes[name] = max(self.outcomes.get(name, "passed"), report.outcome, key=ranks.index)
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skip_reasons[name] = reason.removeprefix("Skipped: ")

    def named(self, outcome: str) -> set[str]:
        """Returns the names of the tests with this outcome."""
        return {name for name, found in self.outcomes.items() if found == outcome}

    def passes(self) -> set[str]:
        """Returns the names of the passes that count; the config's own test needs no model."""
        return {name for name in self.named("passed") if name in self.built_models or name.endswith("::test_config")}

    def lost(self) -> set[str]:
        """Returns the pinned tests that did not pass."""
        lost = set(PINNED.read_text(encoding="utf-8").split()) - self.passes()
        return lost & self.outcomes.keys() if self.is_partial else lost

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fails the run where a pinned test is missing, skipped or no longer builds a model."""
        PASSED.write_text("".join(f"{name}\n" for name in sorted(self.passes())), encoding="utf-8")
        if self.lost() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints each skip with its reason, the passes that say nothing, and what changed against the pinned list."""
        write = terminalreporter.write_line
        terminalreporter.section("conformance")
        for name in sorted(self.named("skipped")):
            write(f"skipped: {name}: {self.skip_reasons[name]}")
        idle = self.named("passed") - self.passes()
        for name in sorted(idle):
            write(f"not counted, passed without building a model: {name}")
        for name in sorted(self.lost()):
            write(f"LOST, pinned but did not pass: {name}")
        if self.passes() - set(PINNED.read_text(encoding="utf-8").split()):
            write(f"There are passes that are not pinned yet. To pin this run's list: cp {PASSED} {PINNED}")
        write(
            f"{len(self.passes())} real passes, {len(self.named('failed'))} failed, {len(self.named('skipped'))} "
            f"skipped, {len(idle)} not counted, {len(self.lost())} lost"
        )


def _name(nodeid: str) -> str:
    return nodeid.partition("::")[2]


def pytest_configure(config: pytest.Config) -> None:
    """Registers the recorder."""
    config.pluginmanager.register(Recorder())
