package admin_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

func TestSignedMetadataIsPublishedAndShown(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	pkg := fakepkg.Describe("1.0.0")
	archive := fakepkg.Write(t, t.TempDir(), pkg.ArchiveName("tar.gz"), fakepkg.Sound(t, pkg))
	if got := s.Upload(archive); got.Status != http.StatusBadRequest || !strings.Contains(got.ErrorBody().Message, "muster package keys publish") {
		t.Errorf("without a root a package got %d %s", got.Status, got.Body)
	}
	stranger := tuftest.New(t)
	stranger.Release("1.0.0", "x")
	for name, body := range map[string]any{
		"[request body.files]: is empty":   map[string]any{},
		"[request body.files[0]]: ":        map[string]any{"files": [][]byte{[]byte("x")}},
		"publish 1.root.json first":        map[string]any{"files": [][]byte{stranger.State.Targets}},
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
	p := s.Publisher()
	root := p.Root
	if a := p.Push(archive); a.Status != http.StatusOK {
		t.Fatalf("push: %s", a.Body)
	}
	state := apptest.Decode[adminapi.Trust](t, s.Admin(http.MethodGet, "/api/v1/trust", nil))
	if !state.Published || *state.TrustRoot != tuf.Digest(root) || state.Targets.Keys[0].Name != "tina" || !state.Targets.Keys[0].Signed || state.Timestamp == nil {
		t.Errorf("the state is %+v", state)
	}
	if info := apptest.Decode[adminapi.Server](t, s.Admin(http.MethodGet, "/api/v1/server", nil)); info.TrustRoot == nil || *info.TrustRoot != tuf.Digest(root) {
		t.Errorf("the server shows the root %v", info.TrustRoot)
	}

	// A package that targets does not name yet is withheld.
	if got := s.Upload(p.Archive(t.TempDir(), "1.1.0")); got.Status != http.StatusOK {
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
	events, err := s.Store.Events().After(t.Context(), 0, 100)
	if err != nil || !slices.ContainsFunc(events, func(e fleet.Event) bool {
		var data struct{ Digest string }
		return e.Type == fleet.EventTrustPublished && e.Actor == "first key" && e.Subject == "1.root.json" && json.Unmarshal(e.Data, &data) == nil && data.Digest == tuf.Digest(root)
	}) {
		t.Errorf("the audit trail does not say who published: %+v, %v", events, err)
	}
}
