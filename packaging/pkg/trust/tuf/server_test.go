package tuf_test

import (
	"bytes"
	"errors"
	mathrand "math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
)

func TestAcceptRefusesWhatAgentsWouldRefuse(t *testing.T) {
	repo, _, th, _ := scene(t)
	nothing := func(*tuf.Edit) error { return nil }
	draft := repo.EditTargets(nothing)
	root := repo.State.Root()
	next := repo.NextRoot(func(*tuf.RootSpec) {})
	signedNext := repo.SignBy(next, root, repo.RootKeys...)
	for _, tc := range []struct {
		name    string
		state   tuf.Repository
		uploads [][]byte
		want    error
		says    string
	}{
		{"nobody signed", repo.State, [][]byte{draft}, tuf.ErrThreshold, "still needs 2 of: ted ("},
		{"one signed", repo.State, [][]byte{repo.SignBy(draft, root, repo.TargetsKeys[1])}, tuf.ErrThreshold, "1 of 2 signatures by the keys of root 1, still needs one of: ted ("},
		{"a root that nobody signed", repo.State, [][]byte{next}, tuf.ErrThreshold, "root 2"},
		{"a root that skips one", repo.State, [][]byte{th.forge(next, func(s map[string]any) { s["version"] = 3 }, repo.RootKeys...)}, tuf.ErrMismatch, "2.root.json"},
		{"another first root", repo.State, [][]byte{tuftest.New(t).State.Root()}, tuf.ErrRollback, "version 1"},
		{"older targets", repo.State, [][]byte{th.forge(draft, func(s map[string]any) { s["version"] = 1 }, repo.TargetsKeys...)}, tuf.ErrRollback, "version 2 is published"},
		{"other targets under the same number", repo.State, [][]byte{th.forge(draft, func(s map[string]any) { s["version"] = 2 }, repo.TargetsKeys...)}, tuf.ErrRollback, "version 2 is published"},
		{"expired targets", repo.State, [][]byte{th.forge(draft, func(s map[string]any) { s["expires"] = "2020-01-01T00:00:00Z" }, repo.TargetsKeys...)}, tuf.ErrExpired, "2020-01-01"},
		{"an expired root", repo.State, [][]byte{th.forge(next, func(s map[string]any) { s["expires"] = "2020-01-01T00:00:00Z" }, repo.RootKeys...)}, tuf.ErrExpired, "root version 2"},
		{"a floor that is no version", repo.State, [][]byte{th.forge(draft, func(s map[string]any) { s["x-muster-floor"] = "latest" }, repo.TargetsKeys...)}, tuf.ErrMalformed, "x-muster-floor"},
		{"a floor that is no text", repo.State, [][]byte{th.forge(draft, func(s map[string]any) { s["x-muster-floor"] = 1 }, repo.TargetsKeys...)}, tuf.ErrMalformed, "x-muster-floor"},
		{"a new major of the format", repo.State, [][]byte{th.forge(draft, func(s map[string]any) { s["spec_version"] = "2.0.0" }, repo.TargetsKeys...)}, tuf.ErrMalformed, "spec_version"},
		{"a server's own file", repo.State, [][]byte{repo.State.Timestamp}, nil, "signed by the server itself"},
		{"two targets files", repo.State, [][]byte{repo.State.Targets, draft}, nil, "second targets file"},
		{"two roots of one number", repo.State, [][]byte{next, signedNext}, nil, "2.root.json: is there twice"},
		{"no file at all", repo.State, [][]byte{[]byte("<html>")}, tuf.ErrMalformed, "not JSON"},
		{"targets before any root", tuf.Repository{}, [][]byte{repo.State.Targets}, nil, "publish 1.root.json first"},
		{"a later root first", tuf.Repository{}, [][]byte{signedNext}, nil, "publish all from 1.root.json on"},
		{"a server's key that people sign with", repo.State, [][]byte{th.forge(next, func(s map[string]any) {
			roles := s["roles"].(map[string]any)
			roles["timestamp"].(map[string]any)["keyids"] = roles["targets"].(map[string]any)["keyids"].([]any)[:1]
		}, repo.RootKeys...)}, tuf.ErrMalformed, "also a key of the server"},
		{"two online keys", repo.State, [][]byte{th.forge(next, func(s map[string]any) {
			roles := s["roles"].(map[string]any)
			roles["timestamp"].(map[string]any)["keyids"] = roles["targets"].(map[string]any)["keyids"]
		}, repo.RootKeys...)}, tuf.ErrMalformed, "roles.timestamp"},
		{"a threshold that cannot be reached", repo.State, [][]byte{th.forge(next, func(s map[string]any) {
			s["roles"].(map[string]any)["targets"].(map[string]any)["threshold"] = 9
		}, repo.RootKeys...)}, tuf.ErrMalformed, "roles.targets.threshold"},
		{"an RSA key", repo.State, [][]byte{th.forge(next, func(s map[string]any) {
			for _, k := range s["keys"].(map[string]any) {
				k.(map[string]any)["keytype"] = "rsa"
			}
		}, repo.RootKeys...)}, tuf.ErrMalformed, "want ed25519"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := tuf.Accept(tc.state, repo.Now, tc.uploads...)
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %v that says %q", err, tc.want, tc.says)
			}
		})
	}
}

func TestAcceptIgnoresOrderAndRepetition(t *testing.T) {
	repo := tuftest.New(t)
	repo.Rotate(func(s *tuf.RootSpec) { s.Root.Threshold = 1 })
	repo.Release("1.0.0", "x")
	s := repo.State
	for _, uploads := range [][][]byte{
		{s.Roots[0], s.Roots[1], s.Targets}, {s.Targets, s.Roots[1], s.Roots[0]}, {s.Roots[1], s.Roots[1], s.Roots[0], s.Targets},
	} {
		for _, start := range []tuf.Repository{{}, s, {Roots: s.Roots[:1]}} {
			got, err := tuf.Accept(start, repo.Now, uploads...)
			if err != nil || len(got.Roots) != 2 || !bytes.Equal(got.Root(), s.Roots[1]) || !bytes.Equal(got.Targets, s.Targets) {
				t.Errorf("got %d roots, %v", len(got.Roots), err)
			}
		}
	}
}

func TestRootThatRemovesTargetsKeysNeedsNewTargets(t *testing.T) {
	repo, h, _, name := scene(t)
	repo.TargetsKeys = append(repo.TargetsKeys, tuftest.Key(t, "tess"), tuftest.Key(t, "toni"))
	root := repo.SignBy(repo.NextRoot(func(s *tuf.RootSpec) {
		s.Targets.Keys = tuftest.Public(repo.TargetsKeys[2:]...)
		s.Targets.Threshold = 3
	}), repo.State.Root(), repo.RootKeys...)
	_, err := tuf.Accept(repo.State, repo.Now, root)
	if !errors.Is(err, tuf.ErrThreshold) || !strings.Contains(err.Error(), "at least 3 of tom (") || !strings.Contains(err.Error(), "publish both together") {
		t.Fatalf("got %v", err)
	}
	targets := repo.SignBy(repo.EditTargets(func(*tuf.Edit) error { return nil }), root, repo.TargetsKeys[2:]...)
	repo.Publish(root, targets)
	h.mustInstall(name)
}

// Whatever the time between two signings, the server's files are valid at every
// moment, and their versions only grow.
func TestOnlineFilesNeverExpireBeforeRenewal(t *testing.T) {
	repo := tuftest.New(t)
	repo.Release("1.0.0", "x")
	random := mathrand.New(mathrand.NewPCG(1, 2))
	snapshots := 0
	for end := repo.Now.Add(tuf.TargetsLife / 2); repo.Now.Before(end); {
		before := repo.State
		next, err := tuf.NextSigning(before)
		if err != nil || next.Before(repo.Now) || next.After(repo.Now.Add(tuf.TimestampRenewal)) {
			t.Fatalf("at %s the next signing is %s, %v", repo.Now, next, err)
		}
		if idle, err := repo.Online.Sign(before, next.Add(-time.Second)); err != nil || !bytes.Equal(idle.Timestamp, before.Timestamp) {
			t.Fatalf("before it is due something is signed: %v", err)
		}
		// Signing is late by up to three days.
		repo.Now = next.Add(time.Duration(random.Int64N(int64(3 * 24 * time.Hour))))
		repo.Resign()
		if err := repo.State.Verify(repo.Now.Add(tuf.TimestampLife - 2*time.Second)); err != nil {
			t.Fatal(err)
		}
		if versionOf(t, repo.State.Timestamp) <= versionOf(t, before.Timestamp) {
			t.Fatal("the timestamp's number did not grow")
		}
		if was, is := versionOf(t, before.Snapshot), versionOf(t, repo.State.Snapshot); is < was {
			t.Fatal("the snapshot's number went down")
		} else if is > was {
			snapshots++
		}
	}
	if snapshots < 6 {
		t.Errorf("only %d snapshots in six weeks", snapshots)
	}
}

func TestSigningAfterARestoreFromBackupIsNoRollback(t *testing.T) {
	repo, h, _, name := scene(t)
	backup := repo.State
	for range 5 {
		repo.Now = repo.Now.Add(tuf.TimestampLife)
		repo.Resign()
	}
	h.mustInstall(name)
	repo.State = backup
	repo.Now = repo.Now.Add(time.Minute)
	repo.Resign()
	h.mustInstall(name)
}

func TestVersionsGrowAfterTheClockIsSetBack(t *testing.T) {
	repo, h, _, name := scene(t)
	repo.Now = repo.Now.Add(30 * 24 * time.Hour)
	repo.Resign()
	h.mustInstall(name)
	repo.Now = repo.Now.Add(-30 * 24 * time.Hour)
	next := repo.Release("1.2.0", "next")
	h.mustInstall(next)
}

func TestSignFailsWithoutTheRootsOnlineKey(t *testing.T) {
	repo, _, _, _ := scene(t)
	fresh := tuftest.Key(t, "new-server")
	root := repo.SignBy(repo.NextRoot(func(s *tuf.RootSpec) { s.Timestamp = fresh.Public() }), repo.State.Root(), repo.RootKeys...)
	state, err := tuf.Accept(repo.State, repo.Now, root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := repo.Online.Sign(state, repo.Now); !errors.Is(err, tuf.ErrNoOnlineKey) ||
		!strings.Contains(err.Error(), "roles.timestamp") || !strings.Contains(err.Error(), "new-server (") {
		t.Errorf("got %v", err)
	}
	if _, err := append(repo.Online, fresh).Sign(state, repo.Now); err != nil {
		t.Error(err)
	}
}

func TestSignDoesNothingWithoutTargets(t *testing.T) {
	repo := tuftest.New(t)
	if repo.State.Snapshot != nil || repo.State.Timestamp != nil {
		t.Error("there are online files without targets")
	}
	if next, err := tuf.NextSigning(repo.State); err != nil || !next.IsZero() {
		t.Errorf("the next signing is %v, %v", next, err)
	}
	newHost(t, repo).mustRefuse("muster-agent-1.0.0-linux-amd64.tar.gz", tuf.ErrNotServed, "no package has been published")
	if empty, err := repo.Online.Sign(tuf.Repository{}, repo.Now); err != nil || empty.Roots != nil {
		t.Errorf("an empty repository: %v", err)
	}
}

// When an offline role has expired, agents must report that role and not a
// timestamp that the server stopped renewing because of it.
func TestOnlineRolesAreRenewedAfterOfflineRolesExpire(t *testing.T) {
	repo, h, _, name := scene(t)
	repo.Now = repo.Now.Add(tuf.TargetsLife + time.Hour)
	repo.Resign()
	h.mustRefuse(name, tuf.ErrExpired, "targets")
	repo.Now = repo.Now.Add(tuf.RootLife)
	repo.Resign()
	h.mustRefuse(name, tuf.ErrExpired, "root")
	expiries, err := repo.State.OfflineExpiries()
	if err != nil || len(expiries) != 2 {
		t.Fatalf("got %+v, %v", expiries, err)
	}
	for i, want := range []tuf.Role{tuf.RoleRoot, tuf.RoleTargets} {
		if e := expiries[i]; e.Role != want || !e.Expires.Before(repo.Now) || !strings.HasPrefix(e.Who, "at least 2 of r") && !strings.HasPrefix(e.Who, "at least 2 of t") {
			t.Errorf("got %+v", e)
		}
	}
}

func TestNewRepositoryRestoresARepositoryFromItsFiles(t *testing.T) {
	repo, _, _, _ := scene(t)
	repo.Rotate(func(s *tuf.RootSpec) { s.Root.Threshold = 1 })
	var files [][]byte
	for name, data := range repo.Served() {
		if strings.HasSuffix(name, ".json") {
			files = append(files, data)
		}
	}
	got, err := tuf.NewRepository(files...)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := tuf.Changes(repo.State, got)
	if err != nil || len(changed) != 0 || len(got.Roots) != 2 {
		t.Errorf("differs in %d files, %v", len(changed), err)
	}
	changed, err = tuf.Changes(tuf.Repository{}, got)
	if err != nil || len(changed) != 5 || changed[0].Name != "1.root.json" || changed[4].Name != tuf.TimestampFile {
		t.Errorf("all of it is %d files, %v", len(changed), err)
	}
	third := repo.SignBy(repo.NextRoot(func(*tuf.RootSpec) {}), repo.State.Root(), repo.RootKeys...)
	if _, err := tuf.NewRepository(repo.State.Roots[0], third); err == nil || !strings.Contains(err.Error(), "2.root.json: is missing") {
		t.Errorf("a gap: got %v", err)
	}
}
