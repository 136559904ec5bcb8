package fleet

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

func TestAgentLabels(t *testing.T) {
	a := Agent{
		Version: "1.2.3", PolicyID: "edge", Tags: []string{"canary", "site=fra", "os=plan9", "site=ams", "=odd"},
		LocalMetadata: json.RawMessage(`{"host":{"architecture":"x86_64"},"os":{"type":"linux","platform":"debian"}}`),
		UserMetadata:  json.RawMessage(`{"rack":4,"site":"ber","gpu":true,"nested":{"no":1}}`),
	}
	for name, want := range map[string]string{
		"os": "linux", "arch": "amd64", "platform": "debian", "version": "1.2.3", "policy": "edge",
		"site": "fra", "rack": "4", "gpu": "true", "nested": "", "unknown": "", "tag:canary": "true", "tag:site": "",
	} {
		if got := a.Label(name); got != want {
			t.Errorf("label %s is %q, want %q", name, got, want)
		}
	}
}

func TestLabelsRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		labels := rapid.MapOf(rapid.StringMatching(`[a-z]{1,4}`), rapid.StringMatching(`[a-z=&% ]{0,6}`)).Draw(r, "labels")
		text := EncodeLabels(labels)
		for name, want := range labels {
			if got := DecodeLabel(text, name); got != want {
				r.Fatalf("%s is %q in %q, want %q", name, got, text, want)
			}
		}
		if got := DecodeLabel(text, "ABSENT"); got != "" {
			r.Fatalf("a label that is not there is %q", got)
		}
	})
}
