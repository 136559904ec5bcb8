package tuf_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
)

// Three people on three machines sign one file in turn, or each signs a copy.
func TestSeveralPeopleSignOneFile(t *testing.T) {
	repo := tuftest.New(t)
	repo.Rotate(func(s *tuf.RootSpec) { s.Targets.Threshold = 3 })
	root := repo.State.Root()
	target, _ := tuftest.Archive("1.0.0", "x")
	draft := repo.EditTargets(func(e *tuf.Edit) error { return e.AddTarget(target) })
	ted, tina, tom := repo.TargetsKeys[0], repo.TargetsKeys[1], repo.TargetsKeys[2]

	says := func(file []byte, want string) {
		t.Helper()
		p, err := tuf.Signatures(file, root)
		if err != nil || p.String() != want || p.Done() == strings.Contains(want, "needs") {
			t.Errorf("got %q, %v; want %q", p, err, want)
		}
	}
	label := func(k tuf.PrivateKey) string { return k.Public().Label() }
	says(draft, fmt.Sprintf("targets version 1 has 0 of 3 signatures by the keys of root 2, still needs 3 of: %s, %s, %s", label(ted), label(tina), label(tom)))
	one := repo.SignBy(draft, root, ted)
	two := repo.SignBy(draft, root, tom)
	both, err := tuf.Merge(one, two)
	if err != nil {
		t.Fatal(err)
	}
	says(both, fmt.Sprintf("targets version 1 has 2 of 3 signatures by the keys of root 2, still needs one of: %s", label(tina)))
	all := repo.SignBy(both, root, tina)
	says(all, "targets version 1 has 3 of 3 signatures by the keys of root 2")
	again := repo.SignBy(all, root, tina)
	says(again, "targets version 1 has 3 of 3 signatures by the keys of root 2")
	if _, err := tuf.Accept(repo.State, repo.Now, again); err != nil {
		t.Error(err)
	}
	if twice, err := tuf.Merge(all, all); err != nil || !bytes.Equal(twice, all) {
		t.Errorf("merging with itself changes the file: %v", err)
	}
}

func TestNextRootNeedsOldAndNewKeys(t *testing.T) {
	repo := tuftest.New(t)
	fresh := tuftest.Key(t, "rita")
	root := repo.NextRoot(func(s *tuf.RootSpec) {
		s.Root = tuf.Signers{Keys: append(tuftest.Public(fresh), s.Root.Keys[1:]...), Threshold: 2}
	})
	signed := repo.SignBy(root, repo.State.Root(), repo.RootKeys[0], fresh)
	p, err := tuf.Signatures(signed, repo.State.Root())
	if err != nil || p.Done() || len(p.Needs) != 2 || len(p.Needs[0].Signed) != 1 || len(p.Needs[1].Signed) != 1 {
		t.Fatalf("got %v, %v", p, err)
	}
	if s := p.String(); !strings.Contains(s, "1 of 2 signatures by the keys of root 1, still needs one of: ruth (") ||
		!strings.Contains(s, "; and 1 of 2 signatures by the keys of root 2, still needs one of: ruth (") {
		t.Errorf("it says %q", s)
	}
	signed = repo.SignBy(signed, repo.State.Root(), repo.RootKeys[1])
	if p, err := tuf.Signatures(signed, repo.State.Root()); err != nil || !p.Done() {
		t.Errorf("got %v, %v", p, err)
	}
	repo.Publish(signed)
	for _, before := range [][]byte{nil, signed} {
		if _, err := tuf.Signatures(signed, before); err == nil || !strings.Contains(err.Error(), "1.root.json, is needed") {
			t.Errorf("got %v", err)
		}
	}
	if _, err := tuf.Signatures(repo.EditTargets(func(*tuf.Edit) error { return nil }), nil); err == nil || !strings.Contains(err.Error(), "root that names its signers") {
		t.Errorf("got %v", err)
	}
}

func TestSignRefusesAKeyOfAnotherRole(t *testing.T) {
	repo := tuftest.New(t)
	draft := repo.EditTargets(func(*tuf.Edit) error { return nil })
	_, err := tuf.Sign(draft, repo.State.Root(), repo.RootKeys[0])
	if !errors.Is(err, tuf.ErrNotSigner) || !strings.Contains(err.Error(), "rosa (") || strings.Count(err.Error(), "ted (") != 1 {
		t.Errorf("got %v", err)
	}
}

func TestMergeRefusesDifferentFiles(t *testing.T) {
	repo := tuftest.New(t)
	target, _ := tuftest.Archive("1.0.0", "x")
	one := repo.EditTargets(func(*tuf.Edit) error { return nil })
	two := repo.EditTargets(func(e *tuf.Edit) error { return e.AddTarget(target) })
	if _, err := tuf.Merge(one, two); err == nil || !strings.Contains(err.Error(), "say different things") {
		t.Errorf("got %v", err)
	}
	if _, err := tuf.Merge(one, repo.State.Root()); err == nil || !strings.Contains(err.Error(), "the other is not") {
		t.Errorf("got %v", err)
	}
	repo.Release("1.0.0", "x")
	if _, err := tuf.Merge(repo.State.Timestamp, repo.State.Timestamp); err == nil {
		t.Error("timestamps are merged")
	}
}

func TestSpecOfReturnsTheSpecOfNewRoot(t *testing.T) {
	repo := tuftest.New(t)
	spec, err := tuf.SpecOf(repo.State.Root())
	if err != nil {
		t.Fatal(err)
	}
	if spec.Root.Threshold != 2 || len(spec.Root.Keys) != 3 || spec.Root.Keys[0].Name != "rosa" || spec.Targets.Keys[2].Name != "tom" ||
		!spec.Timestamp.Equal(repo.Online[0].Public()) || !spec.Expires.Equal(repo.Now.Add(tuf.RootLife)) {
		t.Errorf("got %+v", spec)
	}
	if again, err := tuf.NewRoot(spec); err != nil || tuf.Digest(repo.SignBy(again, nil, repo.RootKeys...)) != tuf.Digest(repo.State.Root()) {
		t.Errorf("the spec makes another root: %v", err)
	}
}

func TestRootSpecErrorNamesTheField(t *testing.T) {
	repo := tuftest.New(t)
	for says, change := range map[string]func(*tuf.RootSpec){
		"root.threshold: is 0, want 1 to 3":    func(s *tuf.RootSpec) { s.Root.Threshold = 0 },
		"targets.threshold: is 4, want 1 to 3": func(s *tuf.RootSpec) { s.Targets.Threshold = 4 },
		"root.keys: there are none":            func(s *tuf.RootSpec) { s.Root.Keys = nil },
		"is there twice":                       func(s *tuf.RootSpec) { s.Targets.Keys[1] = s.Targets.Keys[0] },
		"also a key of the server":             func(s *tuf.RootSpec) { s.Targets.Keys[1] = s.Snapshot },
		"timestamp: has no key":                func(s *tuf.RootSpec) { s.Timestamp = tuf.PublicKey{} },
		"key name \"two words\"":               func(s *tuf.RootSpec) { s.Root.Keys[0].Name = "two words" },
		"expires: is not set":                  func(s *tuf.RootSpec) { s.Expires = time.Time{} },
	} {
		spec, err := tuf.SpecOf(repo.State.Root())
		if err != nil {
			t.Fatal(err)
		}
		change(&spec)
		if _, err := tuf.NextRoot(repo.State.Root(), spec); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

func TestEditOfASignedFileGetsTheNextVersion(t *testing.T) {
	repo := tuftest.New(t)
	life := repo.Now.Add(tuf.TargetsLife)
	edit := func(file []byte) []byte {
		e, err := tuf.EditTargets(file, life)
		if err != nil {
			t.Fatal(err)
		}
		data, err := e.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	first := edit(nil)
	if second := edit(first); versionOf(t, second) != 1 {
		t.Error("a draft got another number")
	}
	signed := repo.SignBy(first, repo.State.Root(), repo.TargetsKeys[0])
	next := edit(signed)
	if versionOf(t, next) != 2 || bytes.Contains(next, []byte(`"sig"`)) {
		t.Errorf("after the first signature: %s", next)
	}
}

func TestTargetsAreEdited(t *testing.T) {
	repo := tuftest.New(t)
	e, err := tuf.EditTargets(nil, repo.Now.Add(tuf.TargetsLife))
	if err != nil {
		t.Fatal(err)
	}
	target, _ := tuftest.Archive("1.0.0", "x")
	other, _ := tuftest.Archive("1.0.0", "y")
	snapshot, _ := tuftest.Archive("1.1.0-SNAPSHOT", "z")
	for _, err := range []error{e.AddTarget(target), e.AddTarget(target), e.AddTarget(snapshot), e.SetFloor("", "1.0.0")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := e.AddTarget(other); err == nil || !strings.Contains(err.Error(), "other bytes") {
		t.Errorf("the same name with other bytes: got %v", err)
	}
	if err := e.SetFloor("", "1.0"); err == nil || !strings.Contains(err.Error(), "floor") {
		t.Errorf("a bad floor: got %v", err)
	}
	until := repo.Now.Add(time.Hour)
	for version, want := range map[string]error{"1.0": tuf.ErrUnknownTarget, "1.2.0": tuf.ErrUnknownTarget, "1.1.0-SNAPSHOT": nil} {
		if err := e.AllowDowngrade("", version, until); !errors.Is(err, want) {
			t.Errorf("going back to %s: got %v", version, err)
		}
	}
	if err := e.AllowDowngrade("", "1.0.0", time.Time{}); err == nil || !strings.Contains(err.Error(), "is not allowed") {
		t.Errorf("ending what was not allowed: got %v", err)
	}
	if err := errors.Join(e.SetFloor("", "1.0.1"), e.AllowDowngrade("", "1.0.0", until)); err == nil || !strings.Contains(err.Error(), "below the floor") {
		t.Errorf("below the floor: got %v", err)
	}
	if err := errors.Join(e.SetFloor("", "1.0.0"), e.AllowDowngrade("", "1.0.0", until), e.AllowDowngrade("", "1.1.0-SNAPSHOT", time.Time{})); err != nil {
		t.Fatal(err)
	}
	if err := e.RemoveTarget("nothing.zip"); !errors.Is(err, tuf.ErrUnknownTarget) {
		t.Errorf("removing nothing: got %v", err)
	}
	data, err := e.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	c, err := tuf.ContentsOf(data)
	if err != nil || c.Floor != "1.0.0" || c.Version != 1 || len(c.Targets) != 2 || c.Targets[0] != snapshot || c.Targets[1] != target ||
		!slices.Equal(c.Downgrades, []tuf.Downgrade{{Version: "1.0.0", Until: until.UTC().Truncate(time.Second)}}) {
		t.Errorf("got %+v, %v", c, err)
	}
	if err := errors.Join(e.RemoveTarget(target.FileName()), e.SetFloor("", "")); err != nil {
		t.Fatal(err)
	}
	if data, err = e.Bytes(); err != nil {
		t.Fatal(err)
	}
	if c, err := tuf.ContentsOf(data); err != nil || c.Floor != "" || len(c.Targets) != 1 {
		t.Errorf("got %+v, %v", c, err)
	}
	for says, change := range map[string]func(*tuf.Target){
		"version":       func(t *tuf.Target) { t.Version = "1.0" },
		"os:":           func(t *tuf.Target) { t.OS = "Linux" },
		"arch:":         func(t *tuf.Target) { t.Arch = "" },
		"format:":       func(t *tuf.Target) { t.Format = "rpm" },
		"size:":         func(t *tuf.Target) { t.Size = 0 },
		"unpacked_size": func(t *tuf.Target) { t.Unpacked = -1 },
		"sha512:":       func(t *tuf.Target) { t.SHA512 = "abc" },
	} {
		bad := target
		change(&bad)
		if err := e.AddTarget(bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}

func TestErrorForTooManyTargetsSaysToRemoveSome(t *testing.T) {
	repo := tuftest.New(t)
	e, err := tuf.EditTargets(nil, repo.Now.Add(tuf.TargetsLife))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		target, _ := tuftest.Archive(fmt.Sprintf("1.0.%d", i), "x")
		if err := e.AddTarget(target); err != nil {
			t.Fatal(err)
		}
		if i == 1500 {
			if _, err := e.Bytes(); err != nil {
				t.Errorf("1,500 archives: %v", err)
			}
		}
	}
	if _, err := e.Bytes(); !errors.Is(err, tuf.ErrTooLong) || !strings.Contains(err.Error(), "remove archives") {
		t.Errorf("got %v", err)
	}
}

func TestPublicKeysAreLinesOfText(t *testing.T) {
	for _, name := range []string{"", "ann", "ann@example.com"} {
		k := tuftest.Key(t, name).Public()
		back, err := tuf.ParsePublicKey(" " + k.String() + "\n")
		if err != nil || !back.Equal(k) || back.Name != name || back.ID() != k.ID() || len(k.ID()) != 64 {
			t.Errorf("%s: got %v, %v", k, back, err)
		}
	}
	k := tuftest.Key(t, "").Public().String()
	for _, bad := range []string{"", "ann", k + " two names", k[:40], "RW" + k, k + " -dash", k + "A"} {
		if _, err := tuf.ParsePublicKey(bad); err == nil {
			t.Errorf("ParsePublicKey(%q) succeeds", bad)
		}
	}
	if _, err := tuf.GenerateKey(rand.Reader, "two words"); err == nil {
		t.Error("a key's name has two words")
	}
}

func TestPrivateKeyFiles(t *testing.T) {
	k := tuftest.Key(t, "ann")
	plain := tuf.UnsafePlainPrivateKey(k)
	if tuf.NeedsPassword(plain) || !strings.Contains(string(plain), "whoever reads this file can sign") {
		t.Errorf("a plain key file does not say what it is:\n%s", plain)
	}
	if back, err := tuf.DecryptPrivateKey("", plain); err != nil || !back.Public().Equal(k.Public()) || back.Public().Name != "ann" {
		t.Errorf("plain: got %v", err)
	}
	locked, err := tuf.EncryptPrivateKey("secret", k)
	if err != nil {
		t.Fatal(err)
	}
	if !tuf.NeedsPassword(locked) || !strings.Contains(string(locked), "scrypt 17 ") {
		t.Errorf("a locked key file is\n%s", locked)
	}
	// Decryption is tested at a low cost, since each guess is meant to be expensive.
	if locked, err = tuf.EncryptCheaply("secret", k); err != nil {
		t.Fatal(err)
	}
	if back, err := tuf.DecryptPrivateKey("secret", locked); err != nil || !back.Public().Equal(k.Public()) || back.Public().Name != "ann" {
		t.Errorf("locked: got %v", err)
	}
	if _, err := tuf.EncryptPrivateKey("", k); !errors.Is(err, trust.ErrNoPassword) {
		t.Errorf("no password: got %v", err)
	}
}

func TestDamagedKeyFilesDoNotOpen(t *testing.T) {
	k, other := tuftest.Key(t, "ann"), tuftest.Key(t, "bob")
	locked, err := tuf.EncryptCheaply("secret", k)
	if err != nil {
		t.Fatal(err)
	}
	change := func(from, to string) []byte { return []byte(strings.Replace(string(locked), from, to, 1)) }
	for name, tc := range map[string]struct {
		file     []byte
		password string
		want     error
		says     string
	}{
		"no password":              {locked, "", trust.ErrNoPassword, ""},
		"wrong password":           {locked, "Secret", trust.ErrWrongPassword, ""},
		"another cost":             {change("scrypt 4", "scrypt 5"), "secret", trust.ErrWrongPassword, ""},
		"another name":             {change(" ann", " bob"), "secret", trust.ErrWrongPassword, ""},
		"another key's header":     {change(k.Public().String(), other.Public().String()), "secret", trust.ErrWrongPassword, ""},
		"a cost that fills memory": {change("scrypt 4", "scrypt 40"), "secret", nil, "want 1 to 20"},
		"another lock":             {change("scrypt 4", "argon 4"), "secret", nil, "want scrypt"},
		"no salt":                  {change("scrypt 4", "scrypt 4 x"), "secret", nil, "header Lock"},
		"the public key":           {[]byte(k.Public().String()), "secret", nil, "was the public key given?"},
		"cut off":                  {locked[:len(locked)/2], "secret", nil, "not a MUSTER TUF"},
		"plain, of another key":    {[]byte(strings.Replace(string(tuf.UnsafePlainPrivateKey(k)), k.Public().String(), other.Public().String(), 1)), "", nil, "names another key"},
	} {
		_, err := tuf.DecryptPrivateKey(tc.password, tc.file)
		if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
