"""The fault campaign: the real processes on a real broker, under load, with faults at random moments."""
