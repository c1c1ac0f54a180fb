"""Mutants of what is read, forgotten and kept: rules R4 to R6."""

from __future__ import annotations

from typing import Final

from tests.mutations.mutant import Mutant

CONNECT: Final = "monitor/store/connect.py"
LOCKS: Final = "monitor/store/locks.py"
RECORDING: Final = "monitor/store/recording.py"
RETENTION: Final = "monitor/store/retention.py"
CONNECT_TESTS: Final = "tests/unit/store/test_connect.py::"
INTERLEAVINGS: Final = "tests/unit/store/test_interleavings.py::"
RECORD: Final = "tests/unit/store/test_record.py::"
RETENTION_TESTS: Final = "tests/unit/store/test_retention.py::"
EXPORTER: Final = "tests/unit/test_exporter.py::"

MUTANTS: Final = (
    Mutant(
        rule="R4",
        title="totals are read at several moments",
        path=CONNECT,
        old='isolation_level="REPEATABLE READ"',
        new='isolation_level="READ COMMITTED"',
        tests=(INTERLEAVINGS + "test_r4_a_reading_is_of_one_moment",),
    ),
    Mutant(
        rule="R4",
        title="quality is shown while totals are rebuilt",
        path="monitor/exporter.py",
        old="""        if not totals.rebuilding:
""",
        new="""        if True:
""",
        tests=(EXPORTER + "test_r4_no_quality_families_while_rebuilding",),
    ),
    Mutant(
        rule="R4",
        title="a rebuild keeps the generation",
        path="monitor/store/totals.py",
        old="generation = locks.own(connection) + 1",
        new="generation = locks.own(connection)",
        tests=(EXPORTER + "test_r4_a_restart_resets_nothing_and_a_rebuild_bumps_the_generation",),
    ),
    Mutant(
        rule="R4",
        title="a rebuild doesn't wait for recorders",
        path=LOCKS,
        old="_GENERATION.with_for_update())",
        new="_GENERATION)",
        tests=(INTERLEAVINGS + "test_r4_a_rebuild_meanwhile_loses_nothing",),
    ),
    Mutant(
        rule="R4",
        title="a recorder doesn't wait for a rebuild",
        path=LOCKS,
        old="""    connection.execute(_GENERATION.with_for_update(read=True))
""",
        new="",
        tests=(INTERLEAVINGS + "test_r4_a_rebuild_meanwhile_loses_nothing",),
    ),
    Mutant(
        rule="R5",
        title="a transcript of a forgotten session is stored",
        path=RECORDING,
        old='forgotten = {"content": None} if item.session_key in self._forgotten else {}',
        new="forgotten: Row = {}",
        tests=(RETENTION_TESTS + "test_r5_what_comes_later_of_a_forgotten_session_has_no_text_but_counts",),
    ),
    Mutant(
        rule="R5",
        title="a judgement of a forgotten session is stored with its text",
        path=RECORDING,
        old='forgotten = {"body": None} if item.session_key in self._forgotten else {}',
        new="forgotten: Row = {}",
        tests=(RETENTION_TESTS + "test_r5_what_comes_later_of_a_forgotten_session_has_no_text_but_counts",),
    ),
    Mutant(
        rule="R5",
        title="forgetting leaves nothing behind to know the session by",
        path=RETENTION,
        old=".values(forgotten_at=now))",
        new=".values(forgotten_at=None))",
        tests=(RETENTION_TESTS + "test_r5_what_comes_later_of_a_forgotten_session_has_no_text_but_counts",),
    ),
    Mutant(
        rule="R5",
        title="overlapping segments count",
        path=RECORDING,
        old="facts.overlap = any(mine & theirs for theirs in others.values())",
        new="facts.overlap = False",
        tests=(RECORD + "test_r5_a_session_that_shares_an_event_with_a_stored_segment_is_not_counted",),
    ),
    Mutant(
        rule="R5",
        title="a judgement of an overlapping segment is told as superseded",
        path="monitor/store/segment.py",
        old="""        if decision.overlap:
            judgement.standing = OVERLAP
            return
""",
        new="",
        tests=(INTERLEAVINGS + "test_r5_of_two_segments_that_overlap_one_counts",),
    ),
    Mutant(
        rule="R5",
        title="the sums of dropped rows are lost",
        path=RETENTION,
        old="""        add_totals(connection, sums, PRUNED)
""",
        new="",
        tests=(RETENTION_TESTS + "test_r5_old_rows_go_and_the_totals_stay",),
    ),
    Mutant(
        rule="R5",
        title="what was dropped counts again",
        path=RECORDING,
        old="return time < self._pruned_before",
        new="return False",
        tests=(RETENTION_TESTS + "test_r5_what_retention_dropped_comes_again_without_effect",),
    ),
    Mutant(
        rule="R5",
        title="the time before which rows went goes back",
        path=RETENTION,
        old="later = META.c.name == _PRUNED_BEFORE, META.c.value < before",
        new="later = (META.c.name == _PRUNED_BEFORE,)",
        tests=(RETENTION_TESTS + "test_r5_the_time_before_which_rows_went_never_goes_back",),
    ),
    Mutant(
        rule="R5",
        title="a row goes while its verdict is waited for",
        path=RETENTION,
        old="DECISIONS.c.closed_at < before, ~waiting.exists(), ",
        new="DECISIONS.c.closed_at < before, ",
        tests=(RETENTION_TESTS + "test_r5_a_session_that_waits_for_its_verdict_is_kept",),
    ),
    Mutant(
        rule="R5",
        title="a row goes though its session closed later",
        path=RETENTION,
        old="DECISIONS.c.recorded_at < before, DECISIONS.c.closed_at < before, ",
        new="DECISIONS.c.recorded_at < before, ",
        tests=(RETENTION_TESTS + "test_r5_a_row_goes_when_all_of_it_is_old",),
    ),
    Mutant(
        rule="R5",
        title="a row goes though it was judged later",
        path=RETENTION,
        old=", ~waiting.exists(), ~newer.exists()",
        new=", ~waiting.exists()",
        tests=(RETENTION_TESTS + "test_r5_a_row_goes_when_all_of_it_is_old",),
    ),
    Mutant(
        rule="R5",
        title="retention doesn't wait for recorders",
        path=RETENTION,
        old="""        locks.own(connection)
        found =""",
        new="        found =",
        tests=(INTERLEAVINGS + "test_r5_a_verdict_that_comes_while_its_row_goes_is_counted_once_or_not",),
    ),
    Mutant(
        rule="R6",
        title="SQLite takes the write lock late",
        path=CONNECT,
        old='"BEGIN IMMEDIATE" if write else "BEGIN"',
        new='"BEGIN"',
        tests=(CONNECT_TESTS + "test_r6_a_sqlite_transaction_that_writes_takes_the_lock_at_once",),
    ),
    Mutant(
        rule="R6",
        title="SQLite may lose the last transactions",
        path=CONNECT,
        old="PRAGMA synchronous = FULL",
        new="PRAGMA synchronous = NORMAL",
        tests=(CONNECT_TESTS + "test_r6_sqlite_is_durable_and_readers_do_not_block",),
    ),
    Mutant(
        rule="R6",
        title="PostgreSQL may lose the last transactions",
        path=CONNECT,
        old="-c synchronous_commit=on",
        new="-c synchronous_commit=off",
        tests=(CONNECT_TESTS + "test_r6_postgresql_is_durable",),
    ),
)
