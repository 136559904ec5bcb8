-- The agents that writes of the last minute changed, for other processes that have the
-- file open; dropped by schema 7. The newest row is never removed, so that seq grows
-- without AUTOINCREMENT, which would touch one more page in every write.
CREATE TABLE agent_changes (
    seq     INTEGER PRIMARY KEY,
    writer  INTEGER NOT NULL, -- who has the file open
    at      INTEGER NOT NULL, -- seconds since 1970
    changes BLOB    NOT NULL
) STRICT;
