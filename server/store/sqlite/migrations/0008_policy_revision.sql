-- The revision of its policy that an agent has, NULL if none: its status is then "updating",
-- and statuses are counted without the documents.
ALTER TABLE facts ADD COLUMN policy_rev INTEGER;
UPDATE facts SET policy_rev = (SELECT nullif(doc ->> '$.policy_revision_idx', 0) FROM agents WHERE agents.rid = facts.rid);
