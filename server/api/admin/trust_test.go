package admin_test

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/trust/tuf"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
)

// signedFor returns a first root for the server, and a targets file that names all of its
// packages.
func signedFor(t *testing.T, s *apptest.Server) (root, targets []byte) {
	t.Helper()
	state := apptest.Decode[adminapi.Trust](t, s.Admin(http.MethodGet, "/api/v1/trust", nil))
	online, err := tuf.ParsePublicKey(state.OnlineKeys[0])
	if err != nil {
		t.Fatal(err)
	}
	rosa, tina := newSigner(t, "rosa"), newSigner(t, "tina")
	root, err = tuf.NewRoot(tuf.RootSpec{
		Root:     tuf.Signers{Keys: []tuf.PublicKey{rosa.Public()}, Threshold: 1},
		Targets:  tuf.Signers{Keys: []tuf.PublicKey{tina.Public()}, Threshold: 1},
		Snapshot: online, Timestamp: online, Expires: time.Now().Add(tuf.RootLife),
	})
	if err == nil {
		root, err = tuf.Sign(root, nil, rosa)
	}
	if err != nil {
		t.Fatal(err)
	}
	edit, err := tuf.EditTargets(nil, time.Now().Add(tuf.TargetsLife))
	if err != nil {
		t.Fatal(err)
	}
	list := apptest.Decode[adminapi.PackageList](t, s.Admin(http.MethodGet, "/api/v1/packages", nil))
	for _, p := range list.Items {
		if err := edit.AddTarget(tuf.Target{Version: p.Version, OS: p.Os, Arch: p.Arch, Format: "tar.gz", Size: p.Size, Unpacked: p.Size, SHA512: p.Sha512}); err != nil {
			t.Fatal(err)
		}
	}
	if targets, err = edit.Bytes(); err == nil {
		targets, err = tuf.Sign(targets, root, tina)
	}
	if err != nil {
		t.Fatal(err)
	}
	return root, targets
}

func newSigner(t *testing.T, name string) tuf.PrivateKey {
	t.Helper()
	k, err := tuf.GenerateKey(rand.Reader, name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestSignedMetadataIsPublishedAndShown(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	p := s.Publisher()
	dir := t.TempDir()
	unsigned := func(version string) apptest.Answer {
		archive := p.Archive(dir, version)
		body, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		return s.Admin(http.MethodPut, "/api/v1/packages/"+filepath.Base(archive), body)
	}
	if got := unsigned("1.0.0"); got.Status != http.StatusBadRequest || !strings.Contains(got.ErrorBody().Message, "header.Muster-Signature") {
		t.Errorf("without a root a package without a signature got %d %s", got.Status, got.Body)
	}
	p.Publish("1.0.0")
	root, targets := signedFor(t, s)

	for name, body := range map[string]any{
		"[request body.files]: is empty":   map[string]any{},
		"[request body.files[0]]: ":        map[string]any{"files": [][]byte{[]byte("x")}},
		"publish 1.root.json first":        map[string]any{"files": [][]byte{targets}},
		"illegal base64 data":              map[string]any{"files": []string{"*"}},
		"[request body.files]: is a JSON ": map[string]any{"files": "x"},
	} {
		if got := s.Admin(http.MethodPost, "/api/v1/trust/files", body); got.Status != http.StatusBadRequest || !strings.Contains(got.ErrorBody().Message, name) {
			t.Errorf("want %q, got %d %s", name, got.Status, got.Body)
		}
	}
	if got := s.Admin(http.MethodPost, "/api/v1/trust/files", `{"files":["`+strings.Repeat("A", 5<<20)+`"]}`); got.Status != http.StatusBadRequest || !strings.Contains(got.ErrorBody().Message, "has more than 4194304 bytes") {
		t.Errorf("an upload that is too large got %d %.200s", got.Status, got.Body)
	}
	state := apptest.Decode[adminapi.Trust](t, s.Admin(http.MethodPost, "/api/v1/trust/files", map[string]any{"files": [][]byte{root, targets}}))
	if !state.Published || *state.TrustRoot != tuf.Digest(root) || state.Targets.Keys[0].Name != "tina" || !state.Targets.Keys[0].Signed || state.Timestamp == nil {
		t.Errorf("the state is %+v", state)
	}
	if info := apptest.Decode[adminapi.Server](t, s.Admin(http.MethodGet, "/api/v1/server", nil)); info.TrustRoot == nil || *info.TrustRoot != tuf.Digest(root) {
		t.Errorf("the server shows the root %v", info.TrustRoot)
	}

	// A package that targets does not name yet is withheld.
	if got := unsigned("1.1.0"); got.Status != http.StatusOK {
		t.Fatalf("with a root a package without a signature got %d %s", got.Status, got.Body)
	}
	list := apptest.Decode[adminapi.PackageList](t, s.Admin(http.MethodGet, "/api/v1/packages", nil)).Items
	i := slices.IndexFunc(list, func(p adminapi.Package) bool { return p.Version == "1.1.0" })
	if len(list) != 2 || *list[i].Signed || list[i].Withheld == nil || !*list[1-i].Signed || list[1-i].Withheld != nil {
		t.Errorf("the packages are %+v", list)
	}
	versions := apptest.Decode[adminapi.VersionList](t, s.Admin(http.MethodGet, "/api/fleet/agents/available_versions", nil)).Items
	if !slices.Equal(versions, []string{"1.0.0"}) {
		t.Errorf("offered are %v", versions)
	}
	a := s.Enroll("web-01", "0.9.0")
	order := func(force bool) apptest.Answer {
		return s.Admin(http.MethodPost, "/api/v1/upgrade_preview", map[string]any{"version": "1.1.0", "agents": []string{a.ID}, "force": force})
	}
	if got := order(false); got.Status != http.StatusBadRequest || !strings.Contains(got.ErrorBody().Message, "targets version 1 does not name it") {
		t.Errorf("the preview says %d %s", got.Status, got.Body)
	}
	if got := apptest.Decode[adminapi.UpgradePreview](t, order(true)); got.Will != 1 {
		t.Errorf("by force: %+v", got)
	}
	if got := s.Agents(http.MethodGet, "/artifacts/"+list[i].File+".minisig", a.Key, nil); got.Status != http.StatusNotFound || !strings.Contains(got.ErrorBody().Message, "no signature of its own") {
		t.Errorf("its signature is %d %s", got.Status, got.Body)
	}
	events, err := s.Store.Events().After(t.Context(), 0, 100)
	if err != nil || !slices.ContainsFunc(events, func(e fleet.Event) bool {
		var data struct{ Digest string }
		return e.Type == fleet.EventTrustPublished && e.Actor == "first key" && e.Subject == "1.root.json" && json.Unmarshal(e.Data, &data) == nil && data.Digest == tuf.Digest(root)
	}) {
		t.Errorf("the audit trail does not say who published: %+v, %v", events, err)
	}
}
