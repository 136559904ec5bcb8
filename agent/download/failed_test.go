package download

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// A source that fails is named with its reason, though the file comes from the next one. One that does
// not have the file, as the drop folder mostly, is not.
func TestFailedSourceIsNamed(t *testing.T) {
	data := noise(1, 100_000)
	for _, row := range []struct {
		name  string
		wrong []byte
		first behaviour
		says  string // empty: nothing
	}{
		{name: "not found", first: answers(404)},
		{name: "not the same bytes", wrong: noise(2, 100_000), says: "has another content than expected"},
		{name: "shorter", wrong: data[:99_999], says: "bytes"},
		{name: "busy", first: answers(503), says: "503"},
		{name: "unauthorized", first: answers(401), says: "401"},
		{name: "breaks", first: breaks(0), says: "the connection ended after 0 of 100000 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				content := row.wrong
				if content == nil {
					content = bytes.Clone(data)
				}
				var bad []behaviour
				if row.first != nil {
					bad = append(bad, row.first)
				}
				one, two := w.host("one", content, bad...), w.host("two", data)
				var named []string
				f := w.fetcher()
				f.Failed = func(source string, err error) { named = append(named, source+" "+err.Error()) }
				if err := f.Fetch(w.Context(), []string{one.url + "?token=secret", two.url}, w.dir, "p", wantOf(data), nil); err != nil {
					t.Fatal(err)
				}
				w.holds(data)
				if row.says == "" {
					if len(named) > 0 {
						t.Errorf("named %q", named)
					}
					return
				}
				if len(named) == 0 || !strings.Contains(named[0], one.url) || !strings.Contains(named[0], row.says) || strings.Contains(named[0], "secret") ||
					slices.ContainsFunc(named, func(s string) bool { return strings.Contains(s, two.url) }) {
					t.Errorf("named %q, want %s and %q", named, one.url, row.says)
				}
			})
		})
	}
}
