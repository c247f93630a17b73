"""The REST API: who calls, what is asked, the contract's objects, and problems in one shape."""
