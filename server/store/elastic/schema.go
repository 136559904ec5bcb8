package elastic

import "maps"

// schemaVersion is that of all mappings. A higher one adds fields and indices; what
// is there never changes its type, so that replicas of two versions can run beside
// each other while the server is upgraded.
const schemaVersion = 2

// The indices, without their prefix.
const (
	indexAgents         = "agents"
	indexAccessKeys     = "agents-access-keys"
	indexActions        = "actions"
	indexResults        = "actions-results"
	indexPackageData    = "package-data"
	indexPolicies       = "policies"
	indexEnrollmentKeys = "enrollment-api-keys"
	indexRollouts       = "rollouts"
	indexTargets        = "rollout-targets"
	indexAudit          = "audit"
	indexEvents         = "events"
	indexDocuments      = "documents" // the nouns of which there are few
)

// maxKeyword bounds the bytes of a text that is kept whole as a column: Lucene's
// limit is 32,766.
const maxKeyword = 32_000

// The types of fields. Keywords of more than 8,191 characters, which could have
// more bytes than Lucene takes, are kept, but not found.
var (
	keyword = body{"type": "keyword", "ignore_above": 8191}
	date    = body{"type": "date"}
	long    = body{"type": "long"}
	boolean = body{"type": "boolean"}
	words   = body{"type": "text"}
	// phrase is found by its words, and as a whole by its twin.
	phrase = body{"type": "text", "fields": body{"keyword": keyword}}
	// kept is in the document alone.
	kept = body{"type": "object", "enabled": false}
	// stored is a text in the document alone.
	stored = body{"type": "keyword", "index": false, "doc_values": false}
	// column is read without the document, and not searched.
	column = body{"type": "keyword", "index": false}
)

func object(properties body) body { return body{"dynamic": "strict", "properties": properties} }

func with(properties, more body) body {
	maps.Copy(properties, more)
	return properties
}

// schemas are the properties of each index, besides those of every document.
var schemas = map[string]body{
	indexAgents: with(queryProperties(), body{
		"id": keyword, "rev": long, "access_api_key_id": keyword, "action_seq_no": long, "last_activity": date, "upgrading_since": date,
		"hostname": keyword, "version_key": keyword, "version_since": date, "healthy_since": date, "labels": column,
	}),
	indexAccessKeys: {"agent_id": keyword},
	indexActions: {
		"action_id": keyword, "type": keyword, "agents": keyword, "@timestamp": date, "user_id": keyword, "start_time": date,
		"rollout_duration_seconds": long, "expiration": date,
	},
	indexResults: {"action_id": keyword, "agent_id": keyword, "@timestamp": date, "failed": boolean, "error": words},
	indexPolicies: {
		"policy_id": keyword, "revision_idx": long, "name": keyword, "namespaces": keyword, "inactivity_timeout": long, "@timestamp": date,
	},
	indexPackageData: {"package": keyword, "size": long, "parts": long, "part": long, "bytes": kept},
	indexEnrollmentKeys: {
		"api_key_id": keyword, "name": keyword, "policy_id": keyword, "active": boolean, "created_at": date, "expire_at": date,
	},
	indexRollouts: {
		"id": keyword, "state": keyword, "active": boolean, "name": keyword, "version": keyword, "created_at": date, "created_by": keyword,
		"started_at": date, "ended_at": date,
	},
	indexTargets: {
		"rollout_id": keyword, "agent_id": keyword, "hostname": keyword, "batch": long, "order": long, "state": keyword, "site": keyword,
		"error": words, "action_id": keyword, "list": long,
	},
	indexAudit:     {"@timestamp": date, "subject": keyword, "actor": keyword, "verb": keyword},
	indexEvents:    {"@timestamp": date, "type": keyword, "subject": keyword, "actor": keyword},
	indexDocuments: {},
}

// mappings of an index. A field they do not have is a mistake of ours, and refused.
func mappings(index string, version int) body {
	properties := body{"doc": kept, "gz": kept, "nonce": stored, "born": long, "noun": keyword}
	for name, p := range schemas[index] {
		properties[name] = p
	}
	return body{"dynamic": "strict", "_meta": body{"muster_schema": version}, "properties": properties}
}

// indexSettings: one primary shard, since the order of actions and events is that
// of a shard, and a million agents are far from filling one; a second copy as soon
// as there is a second node. With an interval that is given, an index is refreshed
// although nobody has searched it for a while: what other processes wrote is late
// by no more than that.
func indexSettings() body {
	return body{"index": body{"number_of_shards": 1, "auto_expand_replicas": "0-1", "refresh_interval": "1s"}}
}
