-- What the progress of an upgrade is derived from, so that counting it reads no documents.
ALTER TABLE facts ADD COLUMN upgrade_status      TEXT    NOT NULL DEFAULT '';
ALTER TABLE facts ADD COLUMN upgrade_phase       TEXT    NOT NULL DEFAULT '';
UPDATE facts SET (upgrade_status, upgrade_phase) = (
    SELECT coalesce(doc ->> '$.upgrade_status', ''), coalesce(doc ->> '$.upgrade_details.state', '') FROM agents WHERE agents.rid = facts.rid
);

-- What happened to agents and their components. at is when it began, and ended when it was over.
CREATE TABLE history (
    seq       INTEGER PRIMARY KEY AUTOINCREMENT,
    id        TEXT    NOT NULL UNIQUE,
    agent_id  TEXT    NOT NULL,
    component TEXT    NOT NULL,
    action_id TEXT    NOT NULL,
    state     TEXT    NOT NULL,
    code      TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    ended     INTEGER NOT NULL,
    doc       TEXT    NOT NULL
) STRICT;
CREATE INDEX history_agent  ON history (agent_id, at, id);
CREATE INDEX history_action ON history (action_id, state, code) WHERE action_id <> '';
CREATE INDEX history_ended  ON history (ended);
