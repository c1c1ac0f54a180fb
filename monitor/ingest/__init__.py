"""Files in, wire events out, in the order of time: `EventFile(...)`, `by_time(...)`, `load_mapping(path)`."""

from monitor.ingest.file import EventFile, Raw
from monitor.ingest.mapping import Mapping, load_mapping, parse_mapping
from monitor.ingest.order import by_time

__all__ = ["EventFile", "Mapping", "Raw", "by_time", "load_mapping", "parse_mapping"]
