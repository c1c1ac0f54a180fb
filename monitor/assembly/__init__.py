"""Assembly: events of one partition in, finished sessions out (rules A1 to A5)."""

from monitor.assembly.assembler import SessionAssembler
from monitor.assembly.open_session import AssemblyPolicy
from monitor.assembly.outputs import (
    Duplicate,
    Finished,
    Late,
    Orphan,
    Output,
    Position,
    SafePosition,
    Skewed,
)

__all__ = [
    "AssemblyPolicy",
    "Duplicate",
    "Finished",
    "Late",
    "Orphan",
    "Output",
    "Position",
    "SafePosition",
    "SessionAssembler",
    "Skewed",
]
