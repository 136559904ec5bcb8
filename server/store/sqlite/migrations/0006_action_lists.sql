-- The agents of large actions, sorted and cut into JSON lists: inserting a row for each of
-- 100,000 agents into action_targets would block other writes for half a second. Large
-- actions are few, so a query for one agent can look into the one list of each that could
-- contain it. Earlier actions keep their rows.
CREATE TABLE listed_actions (
    seq        INTEGER PRIMARY KEY REFERENCES actions (seq) ON DELETE CASCADE,
    expiration INTEGER
) STRICT;
CREATE TABLE action_lists (
    rid    INTEGER PRIMARY KEY,
    seq    INTEGER NOT NULL REFERENCES listed_actions (seq) ON DELETE CASCADE,
    first  TEXT    NOT NULL, -- of agents
    agents TEXT    NOT NULL,
    UNIQUE (seq, first)
) STRICT;
