package app_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/esnode"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

// onElasticsearch makes a server use the Elasticsearch at p.
func onElasticsearch(t *testing.T, p esnode.Place) func(*app.Options) {
	t.Helper()
	s, err := elastic.Open(context.Background(), elastic.Options{
		URLs: p.URLs, Prefix: p.Prefix, Username: p.Username, Password: p.Password, APIKey: p.APIKey, CACert: p.CA,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return func(o *app.Options) { o.Store = s }
}

func TestServersOnElasticsearchServeEachOthersPackages(t *testing.T) {
	place := esnode.Shared(t)
	first := apptest.StartOn(t, t.TempDir(), onElasticsearch(t, place))
	dir := t.TempDir()
	seed(t, first.Data, dir)
	second := apptest.StartOn(t, dir, onElasticsearch(t, place))
	if first.AdminKey == "" || second.AdminKey != "" || first.CAPin != second.CAPin {
		t.Fatalf("the servers are %+v and %+v", first.Info, second.Info)
	}

	p := first.Publisher()
	pkg := fakepkg.Describe("1.1.0")
	archive := fakepkg.Write(t, t.TempDir(), "muster-agent-1.1.0-linux-amd64.tar.gz", append(fakepkg.Sound(t, pkg),
		fakepkg.Entry{Name: fakepkg.Top(pkg) + "/" + pkg.VersionedHome + "/noise", Body: noise(5 << 20)}))
	if got := p.Push(archive); got.Status != http.StatusOK {
		t.Fatalf("push: %d %s", got.Status, got.Body)
	}
	want, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	a := first.EnrollWithoutPolicy("web-01", "1.0.0")
	url := agentapi.PathArtifacts + filepath.Base(archive)
	for name, s := range map[string]*apptest.Server{"the one it was pushed to": first, "the other": second} {
		if got := s.Agents(http.MethodGet, url, a.Key, nil); got.Status != http.StatusOK || !bytes.Equal(got.Body, want) {
			t.Errorf("%s answers %d with %d bytes, want %d", name, got.Status, len(got.Body), len(want))
		}
	}
	second.AdminKey = first.AdminKey
	if got := second.Admin(http.MethodDelete, "/api/v1/packages/"+filepath.Base(archive), nil); got.Status != http.StatusOK {
		t.Errorf("withdrawing it at the other answers %d %s", got.Status, got.Body)
	}
	if got := first.Agents(http.MethodGet, url, a.Key, nil); got.Status != http.StatusNotFound {
		t.Errorf("then the first answers %d", got.Status)
	}
}
