"""The tests that say most about Redis, on every kind of it: scripts, workers, whole sessions."""

import pytest

from tests.e2e.test_resume import *
from tests.integration.test_scripts import *
from tests.integration.test_vanished import *
from tests.integration.test_workers import *

pytestmark = pytest.mark.slow
