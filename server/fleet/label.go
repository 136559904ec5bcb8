package fleet

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Labels of an agent: os, arch, platform, version, policy; what its tags of the
// form name=value say; and the texts and numbers at the top of its user metadata.
// The earlier wins where names meet.
func (a *Agent) Labels() map[string]string {
	labels := map[string]string{}
	var user map[string]any
	_ = json.Unmarshal(a.UserMetadata, &user) // other people's agents send what they like
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
	host := a.Host()
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

// EncodeLabels makes one text of labels, for Census; DecodeLabels reads it.
func EncodeLabels(labels map[string]string) string {
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(labels)) {
		if i > 0 {
			b.WriteByte('&')
		}
		b.WriteString(url.QueryEscape(name) + "=" + url.QueryEscape(labels[name]))
	}
	return b.String()
}

// DecodeLabel finds one label in the text of EncodeLabels.
func DecodeLabel(encoded, name string) string {
	name = url.QueryEscape(name)
	for pair := range strings.SplitSeq(encoded, "&") {
		if k, v, _ := strings.Cut(pair, "="); k == name {
			value, _ := url.QueryUnescape(v)
			return value
		}
	}
	return ""
}
