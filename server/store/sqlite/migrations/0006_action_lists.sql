-- The agents of actions for very many, sorted and cut into JSON lists: a row for each
-- agent of 100,000 in action_targets held all other writes up for half a second. There
-- are few such actions, so an agent can look into the one list of each that could have
-- it. Older actions keep their rows.
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
