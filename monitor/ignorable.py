"""Characters that nobody sees though their category doesn't say so: a hiding place for instructions to a model.

They are the default-ignorable code points of Unicode (DerivedCoreProperties) that are neither control nor format
characters: joiners and fillers, Mongolian and other variation selectors, unassigned ignorable ones. The 256
variation selectors alone can carry any bytes behind a single letter.
"""

from __future__ import annotations

import re
from typing import Final

IGNORABLE: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
