"""The same gateway and workers as for the tests over the native protocol."""

from tests.e2e.conftest import (  # noqa: F401 - fixtures
    auth_settings,
    fleet,
    gateway_settings,
    idle_fleet,
    limit_settings,
)
