"""The tests that say most about Redis, on every kind of it: scripts, workers, what was lost, whole sessions."""

import pytest

from tests.e2e.test_resume import *
from tests.integration.test_rollback import *
from tests.integration.test_scripts import *
from tests.integration.test_workers import *

pytestmark = pytest.mark.slow
