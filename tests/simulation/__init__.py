"""A broker, a group and clients in memory, on virtual time: the real processes, stopped dead at any chosen step.

Only the seam to Kafka is simulated. Time passes when nothing else can happen, so that a wait costs nothing and
every run of one script is the same, step by step.
"""
