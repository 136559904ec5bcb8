package tuf_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
)

// odd are values that a reader may fail on.
var odd = []any{
	nil,
	map[string]any{},
	[]any{},
	[]any{nil},
	"", "x", "root", true, 0, -1, 1 << 53, json.Number("9223372036854775807"), json.Number("1e999"), 1.5,
	map[string]any{"": nil},
	strings.Repeat("ab", 32), "2000-01-01T00:00:00Z", "9999-12-31T23:59:59Z",
}

// mutate changes one place in a tree of JSON.
func mutate(t *rapid.T, v any) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			break
		}
		key := rapid.SampledFrom(slices.Sorted(maps.Keys(v))).Draw(t, "key")
		v = maps.Clone(v)
		switch rapid.IntRange(0, 9).Draw(t, "what") {
		case 0:
			delete(v, key)
		case 1:
			v[strings.ToUpper(key)] = v[key] // encoding/json ignores the case
		case 2:
			v[key+"x"] = v[key]
		default:
			v[key] = mutate(t, v[key])
		}
		return v
	case []any:
		if len(v) == 0 {
			break
		}
		i := rapid.IntRange(0, len(v)-1).Draw(t, "index")
		v = slices.Clone(v)
		if rapid.Bool().Draw(t, "twice") {
			return append(v, v[i])
		}
		v[i] = mutate(t, v[i])
		return v
	}
	return rapid.SampledFrom(odd).Draw(t, "odd")
}

// Invalid files that are signed by all keys (a thief's, or a careless publisher's)
// crash neither agent nor server, and both agree on whether to refuse them.
func TestSignedInvalidFilesCrashNeitherAgentNorServer(t *testing.T) {
	repo := tuftest.New(t)
	repo.Release("1.0.0", "x")
	repo.ReleaseComponent("web", "2.0.0", "y")
	repo.PublishTargets(func(e *tuf.Edit) error {
		until := repo.Now.Add(time.Hour)
		return errors.Join(e.SetFloor("", "1.0.0"), e.AllowDowngrade("", "1.0.0", until), e.SetFloor("web", "2.0.0"), e.AllowDowngrade("web", "2.0.0", until))
	})
	next := repo.SignBy(repo.NextRoot(func(*tuf.RootSpec) {}), repo.State.Root(), repo.RootKeys...)
	all := slices.Concat(repo.RootKeys, repo.TargetsKeys, repo.Online)
	good := map[string][]byte{"root": next, "targets": repo.State.Targets, "snapshot": repo.State.Snapshot, "timestamp": repo.State.Timestamp}
	rapid.Check(t, func(t *rapid.T) {
		role := rapid.SampledFrom([]string{"root", "targets", "snapshot", "timestamp"}).Draw(t, "role")
		var tree any
		if err := json.Unmarshal(good[role], &tree); err != nil {
			t.Fatal(err)
		}
		for range rapid.IntRange(1, 3).Draw(t, "changes") {
			tree = mutate(t, tree)
		}
		bad, err := json.Marshal(tree)
		if err != nil {
			t.Fatal(err)
		}
		if signed, err := tuf.Forge(bad, all...); err == nil && rapid.Bool().Draw(t, "signed") {
			bad = signed
		}
		state := repo.State
		switch role {
		case "root":
			state.Roots = [][]byte{repo.State.Root(), bad}
		case "targets":
			state.Targets = bad
		case "snapshot":
			state.Snapshot = bad
		case "timestamp":
			state.Timestamp = bad
		}
		_ = state.Verify(repo.Now)
		for _, look := range []func() error{
			func() error { _, err := tuf.Inspect(bad); return err },
			func() error { _, err := tuf.Signatures(bad, repo.State.Root()); return err },
			func() error { _, err := tuf.SpecOf(bad); return err },
			func() error { _, err := tuf.ContentsOf(bad); return err },
			func() error { _, err := tuf.Merge(bad, good[role]); return err },
		} {
			_ = look()
		}
		if accepted, err := tuf.Accept(repo.State, repo.Now, bad); err == nil {
			signed, err := repo.Online.Sign(accepted, repo.Now)
			if err != nil {
				return
			}
			if err := signed.Verify(repo.Now); err != nil {
				t.Fatalf("the server publishes what agents refuse: %v\n%s", err, bad)
			}
		}
	})
}

// The library's work grows with the square of a list's length, before it verifies
// any signature.
func TestLongListsAreRefusedBeforeVerification(t *testing.T) {
	repo := tuftest.New(t)
	repo.Release("1.0.0", "x")
	var f map[string]any
	if err := json.Unmarshal(repo.State.Targets, &f); err != nil {
		t.Fatal(err)
	}
	var many []any
	for i := range 20_000 {
		many = append(many, map[string]any{"keyid": fmt.Sprint(i), "sig": ""})
	}
	f["Signatures"] = many // encoding/json ignores the case
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tuf.Inspect(data); err == nil || !strings.Contains(err.Error(), "more than 256 entries") {
		t.Errorf("got %v", err)
	}
}
