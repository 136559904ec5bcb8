-- What each write has changed about agents, for the other processes that have the
-- file open; the last minute of it. The newest row is never removed, so that seq
-- grows without AUTOINCREMENT, which would be one more page in every write.
CREATE TABLE agent_changes (
    seq     INTEGER PRIMARY KEY,
    writer  INTEGER NOT NULL, -- who has the file open
    at      INTEGER NOT NULL, -- seconds since 1970
    changes BLOB    NOT NULL  -- changes.go says how
) STRICT;
