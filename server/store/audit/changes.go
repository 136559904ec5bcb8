package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// An entry has at most some 25 KB about changes: lists of the trail read entries whole.
const (
	maxChanges     = 60
	maxChangedName = 100
	maxChangedText = 150
	maxNamed       = 10 // in the text of an entry
)

// FieldChange is a field that has changed.
type FieldChange struct {
	Field string `json:"field"` // its path, such as ssl.verification_mode
	// Before and After are its values, in one line and cut to a length. Empty: it was or is not
	// set, or it is Hidden.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
	// Hidden is set if the values may hold a secret.
	Hidden bool `json:"hidden,omitempty"`
}

// changes is the data of an entry.
type changes struct {
	Changes []FieldChange `json:"changes"`
}

// format is how the values of a field are shown.
type format int

const (
	text        format = iota
	address            // hidden if it has a user, a password or a query
	nanoseconds        // as a duration
)

// shown are the fields of each kind whose values are shown in the audit trail. All others may hold
// a secret, or have it later: of them only the name is shown. So is what takes any text or object,
// such as config_yaml, overrides, headers and the variables of components.
var shown = map[reflect.Type]map[string]format{
	reflect.TypeFor[fleet.Policy](): {
		"name": text, "namespace": text, "description": text, "inactivity_timeout": nanoseconds, "unenroll_timeout": text,
		"monitoring_enabled": text, "keep_monitoring_alive": text, "monitoring_pprof_enabled": text,
		"data_output_id": text, "monitoring_output_id": text, "download_source_id": text, "fleet_server_host_id": text,
		"agent_features": text, "required_versions": text, "upgrade_windows": text,
		"is_protected": text, "is_managed": text, "is_default": text, "is_default_fleet_server": text, "has_fleet_server": text, "supports_agentless": text,
	},
	reflect.TypeFor[fleet.FleetServerHost](): {
		"name": text, "host_urls": address, "is_default": text, "is_internal": text, "is_preconfigured": text, "proxy_id": text, "ssl.client_auth": text,
	},
	reflect.TypeFor[fleet.DownloadSource](): {
		"name": text, "host": address, "is_default": text, "proxy_id": text, "ssl.verification_mode": text,
	},
	reflect.TypeFor[fleet.FleetProxy](): {"name": text, "url": address, "is_preconfigured": text},
	reflect.TypeFor[fleet.Output](): {
		"name": text, "type": text, "hosts": address, "is_default": text, "is_default_monitoring": text, "is_internal": text, "is_preconfigured": text,
		"ca_sha256": text, "ca_trusted_fingerprint": text, "ssl.verification_mode": text, "proxy_id": text, "preset": text, "write_to_logs_streams": text,
		"kibana_url": address, "sync_integrations": text, "sync_uninstalled_integrations": text,
		"version": text, "compression": text, "compression_level": text, "client_id": text, "auth_type": text, "connection_type": text,
		"sasl.mechanism": text, "partition": text, "topic": text, "timeout": text, "broker_timeout": text, "required_acks": text,
	},
	reflect.TypeFor[fleet.ExposureRule](): {"enabled": text, "percent": text, "healthy_hours": text, "per": text},
	reflect.TypeFor[fleet.Freeze]():       {"name": text, "from": text, "to": text},
	reflect.TypeFor[fleet.Webhook]():      {"name": text, "events": text, "disabled": text}, // an address may be a secret as a whole
	reflect.TypeFor[fleet.View]():         {"name": text, "page": text, "search": text},
}

// unnamed are the fields that every change changes, and the sealed secrets, whose fields have
// names of their own.
var unnamed = []string{"id", "revision", "revisions", "sealed", "created_at", "created_by", "updated_at", "updated_by"}

// Changes returns the fields in which two states of an object differ, by name. The values of
// those that may hold a secret are not shown. An object is given with its secrets opened, so that
// they are compared. Of very many fields those beyond a number are counted.
func Changes[T any](before, after T) []FieldChange {
	was, is := fields(before), fields(after)
	both := maps.Clone(was)
	maps.Copy(both, is)
	var out []FieldChange
	for _, name := range slices.Sorted(maps.Keys(both)) {
		if reflect.DeepEqual(was[name], is[name]) {
			continue
		}
		as, ok := shown[reflect.TypeFor[T]()][name]
		c := FieldChange{Field: inLine(name, maxChangedName), Hidden: !ok || as == address && (hasSecret(was[name]) || hasSecret(is[name]))}
		if !c.Hidden {
			c.Before, c.After = as.line(was[name]), as.line(is[name])
		}
		out = append(out, c)
	}
	if n := len(out) - maxChanges; n > 0 {
		out = append(out[:maxChanges], FieldChange{Field: fmt.Sprintf("… and %d more", n), Hidden: true})
	}
	return out
}

// ChangeData returns changes as the data of an entry, nil if there are none.
func ChangeData(c []FieldChange) json.RawMessage {
	if len(c) == 0 {
		return nil
	}
	data, err := json.Marshal(changes{c})
	if err != nil {
		panic(fmt.Sprintf("changes: %v", err)) // they are texts
	}
	return data
}

// ChangedNames returns the names of the fields for the text of an entry.
func ChangedNames(c []FieldChange) string {
	var names []string
	for _, f := range c[:min(len(c), maxNamed)] {
		names = append(names, f.Field)
	}
	if len(c) > maxNamed {
		names = append(names, "and others")
	}
	return strings.Join(names, ", ")
}

// fields returns the values of an object by their paths. A list is one value.
func fields(v any) map[string]any {
	encoded, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("changes: %v", err)) // a document that cannot be encoded cannot be stored
	}
	d := json.NewDecoder(bytes.NewReader(encoded))
	d.UseNumber()
	var tree map[string]any
	if err := d.Decode(&tree); err != nil {
		panic(fmt.Sprintf("changes: %v", err))
	}
	for _, name := range unnamed {
		delete(tree, name)
	}
	out := map[string]any{}
	flatten(out, "", tree)
	return out
}

func flatten(out map[string]any, at string, tree map[string]any) {
	for name, v := range tree {
		switch v := v.(type) {
		case nil:
		case map[string]any:
			flatten(out, at+name+".", v)
		default:
			out[at+name] = v
		}
	}
}

// hasSecret reports whether an address, or one of a list, has more than a place.
func hasSecret(v any) bool {
	if list, ok := v.([]any); ok {
		return slices.ContainsFunc(list, hasSecret)
	}
	s, _ := v.(string)
	return strings.ContainsAny(s, "@?#")
}

func (f format) line(v any) string {
	if v == nil {
		return ""
	}
	s, isText := v.(string)
	if n, ok := v.(json.Number); ok && f == nanoseconds {
		if i, err := n.Int64(); err == nil {
			s, isText = time.Duration(i).String(), true
		}
	}
	if !isText {
		encoded, err := json.Marshal(v)
		if err != nil {
			panic(fmt.Sprintf("changes: %v", err)) // it was decoded from JSON
		}
		s = string(encoded)
	}
	return inLine(s, maxChangedText)
}

func inLine(s string, most int) string {
	return fleet.CutText(strings.Join(strings.Fields(s), " "), most)
}
