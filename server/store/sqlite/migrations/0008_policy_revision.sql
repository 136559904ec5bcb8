-- The revision of its policy that an agent has, NULL if none: its status is then "updating",
-- and statuses are counted without the documents.
ALTER TABLE facts ADD COLUMN policy_rev INTEGER;
UPDATE facts SET policy_rev = (SELECT nullif(doc ->> '$.policy_revision_idx', 0) FROM agents WHERE agents.rid = facts.rid);

-- What a host called its enrolment: one that enrols again is looked up by it.
ALTER TABLE facts ADD COLUMN enrollment_id TEXT;
UPDATE facts SET enrollment_id = (SELECT nullif(doc ->> '$.enrollment_id', '') FROM agents WHERE agents.rid = facts.rid);
CREATE INDEX facts_enrollment_id ON facts (enrollment_id) WHERE enrollment_id IS NOT NULL;
