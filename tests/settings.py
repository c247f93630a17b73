"""The product's settings in a private folder, with a Valkey of the run's own and the short times tests wait for."""

import os
import tempfile

_folder = os.environ.get("BRANCHLINE_TEST_FOLDER") or tempfile.mkdtemp(prefix="branchline-test-", dir="/tmp")
# Tests that run side by side have a folder each: a database, a Valkey, workspaces.
_folder = os.path.join(_folder, os.environ.get("PYTEST_XDIST_WORKER", ""))
for _name in list(os.environ):
    # A developer's own settings and keys must not decide what a test sees.
    if _name.startswith(("BRANCHLINE_", "OPENAI_", "ANTHROPIC_", "GOOGLE_", "GEMINI_", "MISTRAL_", "GROQ_", "OLLAMA_")):
        del os.environ[_name]
for _name in ("SECRET_KEY", "DATABASE_URL", "ALLOWED_HOSTS", "PUBLIC_URL", "TRUSTED_PROXIES", "DEBUG"):
    os.environ.pop(_name, None)
os.environ |= {
    "BRANCHLINE_TEST_FOLDER": _folder,
    "DATA_DIR": f"{_folder}/data",
    "REDIS_URL": f"unix://{_folder}/valkey/v.sock?db=0",
    "BRANCHLINE_MODEL": "demo",
    "BRANCHLINE_LEASE_SECONDS": "2",
    "BRANCHLINE_SWEEP_SECONDS": "0.2",
    "SECRET_KEY": "only-for-tests-" * 4,
}

if os.environ.get("TEST_DB") == "pg" and "DATABASE_URL" not in os.environ:
    from tests.postgres import new_database

    os.environ["DATABASE_URL"] = new_database("branchline")

from chatapp.settings import *  # noqa: E402, F403

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
