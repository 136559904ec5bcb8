-- When the first upgrade of a component began that is under way, NULL if none is: such agents
-- are looked at every half a minute.
ALTER TABLE facts ADD COLUMN components_since INTEGER;
CREATE INDEX facts_components ON facts (components_since, id) WHERE components_since IS NOT NULL;
