package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// SiteLabel is the label of the place that a host is at. Plans and pages group hosts by it.
const SiteLabel = "site"

// Labels returns the agent's labels: os, arch, platform, version and policy; its tags
// of the form name=value; and the strings, numbers and booleans at the top level of its
// user metadata. On a name collision the earlier source wins.
func (a *Agent) Labels() map[string]string { return a.LabelsOn(a.Host()) }

// LabelsOn is Labels for a caller that has already decoded the host's metadata.
func (a *Agent) LabelsOn(host HostMetadata) map[string]string {
	labels := map[string]string{}
	var user map[string]any
	if len(a.UserMetadata) > 0 {
		_ = json.Unmarshal(a.UserMetadata, &user) // agents of other makers send what they like
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

// Label returns the value of one label, empty if the agent does not have it. "tag:NAME"
// is "true" if the agent has the tag NAME.
func (a *Agent) Label(name string) string {
	if tag, ok := strings.CutPrefix(name, "tag:"); ok {
		if slices.Contains(a.Tags, tag) {
			return "true"
		}
		return ""
	}
	return a.Labels()[name]
}

// EncodeLabels encodes labels as one string, a line each, for Census; DecodeLabel reads
// it. Names that contain an equals sign are left out; a tag cannot yield such a label.
// Line breaks in values become spaces.
func EncodeLabels(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if !strings.ContainsAny(name, "=\n") {
			b.WriteString(name + "=" + strings.ReplaceAll(labels[name], "\n", " ") + "\n")
		}
	}
	return b.String()
}

// DecodeLabel returns the value of one label in the result of EncodeLabels, empty if it
// is not there.
func DecodeLabel(encoded, name string) string {
	for line := range strings.Lines(encoded) {
		if value, ok := strings.CutPrefix(line, name); ok && value[0] == '=' {
			return value[1 : len(value)-1]
		}
	}
	return ""
}
