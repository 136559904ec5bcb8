package elastic

import "maps"

// schemaVersion is the version of all mappings. A new version may add fields and indices,
// but never change the type of a field, so that servers of two versions can run concurrently
// during an upgrade.
const schemaVersion = 1

// oldestReader is the lowest schema whose programs can work with what this one has written,
// once the indices say that they have it. It is below schemaVersion if the new fields and
// indices only add what those programs can do without: a document that they write lacks the
// indexed fields.
const oldestReader = 1

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
	indexHistory        = "history"
	indexEvents         = "events"
	indexDocuments      = "documents" // kinds with few documents
)

// maxKeyword bounds the bytes of a text with doc values. Lucene's limit is 32,766.
const maxKeyword = 32_000

// The types of fields. A keyword of more than 8,191 characters, which may exceed Lucene's
// limit, is stored but not indexed.
var (
	keyword = body{"type": "keyword", "ignore_above": 8191}
	date    = body{"type": "date"}
	long    = body{"type": "long"}
	boolean = body{"type": "boolean"}
	words   = body{"type": "text"}
	// phrase is a text with a keyword as its multi-field, so that it is found by its words
	// and as a whole.
	phrase = body{"type": "text", "fields": body{"keyword": keyword}}
	// opaque is only part of the source.
	opaque = body{"type": "object", "enabled": false}
	// unindexed is a text that is only part of the source.
	unindexed = body{"type": "keyword", "index": false, "doc_values": false}
	// column is a text with doc values, which are read without the source. It is not
	// indexed.
	column = body{"type": "keyword", "index": false}
)

func object(properties body) body { return body{"dynamic": "strict", "properties": properties} }

func with(properties, more body) body {
	maps.Copy(properties, more)
	return properties
}

// schemas are the properties of each index, in addition to those that mappings adds.
var schemas = map[string]body{
	indexAgents: with(queryProperties(), body{
		"id": keyword, "rev": long, "access_api_key_id": keyword, "action_seq_no": long, "last_activity": date, "upgrading_since": date,
		"hostname": keyword, "version_key": keyword, "version_since": date, "healthy_since": date, "orders_ended_at": date, "labels": column,
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
	indexPackageData: {"package": keyword, "size": long, "parts": long, "part": long, "bytes": opaque},
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
	indexAudit: {"@timestamp": date, "subject": keyword, "actor": keyword, "verb": keyword, "words": keyword},
	indexHistory: {
		"record_id": keyword, "agent_id": keyword, "component": keyword, "action_id": keyword, "state": keyword, "code": keyword, "at": long, "ended": long,
	},
	indexEvents:    {"@timestamp": date, "type": keyword, "subject": keyword, "actor": keyword},
	indexDocuments: {},
}

// mappings returns the mappings of an index. They are strict: an unknown field is a bug.
func mappings(index string, version int) body {
	properties := body{"doc": opaque, "gz": opaque, "nonce": unindexed, "born": long, "noun": keyword}
	for name, p := range schemas[index] {
		properties[name] = p
	}
	return body{"dynamic": "strict", "_meta": body{"muster_schema": version}, "properties": properties}
}

// indexSettings returns the settings of every index. There is one primary shard, because the
// order of actions and events is that of a shard, and a shard holds far more than a million
// agents. There is a replica if there is a second node. With an explicit refresh interval,
// Elasticsearch refreshes an index even if it was not searched recently, so that the writes
// of other processes are visible after that time.
func indexSettings() body {
	return body{"index": body{"number_of_shards": 1, "auto_expand_replicas": "0-1", "refresh_interval": "1s"}}
}
