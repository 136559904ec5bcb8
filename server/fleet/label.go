package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Labels of an agent: os, arch, platform, version, policy; what its tags of the
// form name=value say; and the texts and numbers at the top of its user metadata.
// The earlier wins where names meet.
func (a *Agent) Labels() map[string]string { return a.LabelsOn(a.Host()) }

// LabelsOn is Labels for a caller that has read the host's metadata.
func (a *Agent) LabelsOn(host HostMetadata) map[string]string {
	labels := map[string]string{}
	var user map[string]any
	if len(a.UserMetadata) > 0 {
		_ = json.Unmarshal(a.UserMetadata, &user) // other people's agents send what they like
	}
	for name, v := range user {
		switch v.(type) {
		case string, float64, bool:
			labels[name] = fmt.Sprint(v)
		}
	}
	for _, tag := range slices.Backward(a.Tags) {
		if name, value, ok := strings.Cut(tag, "="); ok && name != "" {
			labels[name] = value
		}
	}
	for name, value := range map[string]string{
		"os": host.OS.Type, "arch": goArch(host.Host.Architecture), "platform": host.OS.Platform, "version": a.Version, "policy": a.PolicyID,
	} {
		labels[name] = value
	}
	return labels
}

// Label is one of the agent's labels; "tag:NAME" is "true" where the agent has
// the tag NAME. Empty: it has none of this name.
func (a *Agent) Label(name string) string {
	if tag, ok := strings.CutPrefix(name, "tag:"); ok {
		if slices.Contains(a.Tags, tag) {
			return "true"
		}
		return ""
	}
	return a.Labels()[name]
}

// EncodeLabels makes one text of labels, a line each, for Census; DecodeLabel
// reads it. Names with an equals sign, which no label of a tag can have, are left
// out; line breaks in values become spaces.
func EncodeLabels(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if !strings.ContainsAny(name, "=\n") {
			b.WriteString(name + "=" + strings.ReplaceAll(labels[name], "\n", " ") + "\n")
		}
	}
	return b.String()
}

// DecodeLabel finds one label in the text of EncodeLabels; empty: it is not there.
func DecodeLabel(encoded, name string) string {
	for line := range strings.Lines(encoded) {
		if value, ok := strings.CutPrefix(line, name); ok && value[0] == '=' {
			return value[1 : len(value)-1]
		}
	}
	return ""
}
