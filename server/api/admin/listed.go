package admin

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// listedBytes bounds what one list of agents has of the long documents of hosts. A host may
	// keep one of 600 KB, and decoded it takes several times that. An Elastic Agent with a hundred
	// components has 200 KB, of which the usual page of 20 is whole.
	listedBytes = 4 << 20
	// usualBytes is what a list has of every host: an Elastic Agent with ten components of two
	// units has 8 KiB.
	usualBytes = 16 << 10
	// shortText is how much a shortened document keeps of a text, in bytes: as much as a column
	// of a list shows, and a name of a host in DNS.
	shortText = 256
	// shortPart bounds each part of a shortened document, in bytes, so that all of them are not
	// more than usualBytes.
	shortPart = 4 << 10
)

// listed fits the documents of hosts into one list. Its zero value is ready for use.
type listed struct{ used int }

// fit returns the agent, or one whose long texts are shortened if the list has no room for them.
// The agent's own page has all of them.
func (l *listed) fit(a *fleet.Agent) *fleet.Agent {
	if l.take(a) {
		return a
	}
	return shortened(a)
}

// take reports whether the list has room for the agent's document, and uses it up.
func (l *listed) take(a *fleet.Agent) bool {
	n := ownBytes(a)
	if n <= usualBytes {
		return true
	}
	if l.used+n > listedBytes {
		return false
	}
	l.used += n
	return true
}

// ownBytes returns how many bytes an agent's document has that its host chose.
func ownBytes(a *fleet.Agent) int {
	n := len(a.LocalMetadata) + len(a.UserMetadata) + len(a.Components) + len(a.Last.Message) + textBytes(a.UpgradeDetails)
	for _, tag := range a.Tags {
		n += len(tag)
	}
	for _, u := range a.ComponentUpgrades {
		n += textBytes(u.UpgradeDetails)
	}
	return n
}

func textBytes(d *agentapi.UpgradeDetails) int {
	if d == nil {
		return 0
	}
	return len(d.Metadata.ErrorMsg) + len(d.Metadata.RetryErrorMsg) + len(d.Metadata.Reason)
}

// shortened returns a copy of an agent with what lists show: who it is, its system, and its
// components without their units.
func shortened(a *fleet.Agent) *fleet.Agent {
	out := *a
	out.LocalMetadata, out.UserMetadata = shortMetadata(a.LocalMetadata), nil
	out.Components = shortComponents(a.Components)
	out.Last.Message = fleet.Shorten(a.Last.Message, shortText)
	out.UpgradeDetails = shortDetails(a.UpgradeDetails)
	out.Tags = nil
	left := shortPart
	for _, tag := range a.Tags {
		if left -= len(tag); left < 0 {
			break
		}
		out.Tags = append(out.Tags, tag)
	}
	out.ComponentUpgrades = maps.Clone(a.ComponentUpgrades)
	for name, u := range out.ComponentUpgrades {
		u.UpgradeDetails = shortDetails(u.UpgradeDetails)
		out.ComponentUpgrades[name] = u
	}
	return &out
}

func shortDetails(d *agentapi.UpgradeDetails) *agentapi.UpgradeDetails {
	if d == nil {
		return nil
	}
	out := *d
	for _, text := range []*string{&out.Metadata.ErrorMsg, &out.Metadata.RetryErrorMsg, &out.Metadata.Reason} {
		*text = fleet.Shorten(*text, shortText)
	}
	return &out
}

// shortComponents returns the first components of a report, without their units.
func shortComponents(raw json.RawMessage) json.RawMessage {
	var all []agentapi.Component
	if json.Unmarshal(raw, &all) != nil {
		return nil // agents of other makers may send another type
	}
	var out []json.RawMessage
	left := shortPart
	for _, c := range all {
		c.Units, c.Message, c.UpgradeDetails = nil, fleet.Shorten(c.Message, shortText), shortDetails(c.UpgradeDetails)
		text, err := json.Marshal(c)
		if err != nil {
			return nil
		}
		if left -= len(text); left < 0 {
			break
		}
		out = append(out, text)
	}
	return encoded(out)
}

// shortMetadata returns of a host's metadata what fleet.HostMetadata and lists read.
func shortMetadata(raw json.RawMessage) json.RawMessage {
	all := object(raw)
	out := map[string]any{}
	parts := []string{"elastic", "host", "os", "muster"}
	for _, part := range parts {
		left := shortPart / len(parts)
		if v, ok := shortValue(all[part], &left); ok {
			out[part] = v
		}
	}
	return encoded(out)
}

// shortValue returns an object with its short values, as far as the bytes left go. It drops lists.
func shortValue(v any, left *int) (any, bool) {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if len(name) > shortText {
				continue
			}
			if value, ok := shortValue(v[name], left); ok {
				if *left -= len(name); *left < 0 {
					break
				}
				out[name] = value
			}
		}
		return out, true
	case string:
		v = fleet.Shorten(v, shortText)
		*left -= len(v)
		return v, *left >= 0
	case bool, float64:
		*left -= 8
		return v, *left >= 0
	}
	return nil, false
}

func encoded(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic("encode a short document: " + err.Error()) // it was decoded
	}
	return text
}
