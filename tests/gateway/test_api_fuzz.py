"""The whole API from outside by its own document: whatever is sent, the answer is one that the document names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from gateway.api.app import document
from tests.product import Product

# For each call; `make soak` takes many.
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "2"))
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


class Target:
    """A product, and a conversation in it that half of the calls are about."""

    def __init__(self, product: Product) -> None:
        self.product = product
        self.conversation = ""

    def aim(self, case: Case[Any]) -> None:
        """Ids of nothing are answered 404 before anything else is looked at: some must be real."""
        if not self.conversation or self.product.api("GET", f"/conversations/{self.conversation}").status_code == 404:
            self.conversation = self.product.conversation()
        for name, value in case.path_parameters.items():
            if name in ("conversation_id", "session_id") and len(str(value)) % 2:
                case.path_parameters[name] = self.conversation


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    product = Product(tmp_path_factory.mktemp("fuzz")).start()
    yield Target(product)
    product.stop()


# The stream has no end that a fuzzer could wait for; its inputs are those of the list of events.
api = schemathesis.openapi.from_dict(document()).exclude(path_regex="/stream$")
api.config.phases.coverage.enabled = EXAMPLES > 2


@api.parametrize()
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
def test_every_answer_is_one_that_the_document_names(case: Case[Any], target: Target) -> None:
    target.aim(case)
    headers = {"Authorization": f"Bearer {target.product.token}"}
    response = case.call(base_url=target.product.url, headers=headers, timeout=20)
    case.validate_response(response, checks=CHECKS, headers=headers)
