package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

func options(t *testing.T) Options {
	t.Helper()
	self, err := os.Executable() // any program will do: nothing runs it here
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Programs: map[string]string{"amd64": self, "arm64": self}, Version: "1.2.3", Revision: "abc",
		Source: "https://example.com/muster", Created: time.Unix(1700000000, 0), Out: t.TempDir(),
	}
}

func TestTwoBuildsHaveTheSameDigests(t *testing.T) {
	var digests, tars []string
	for range 2 {
		o := options(t)
		if err := Build(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		index, err := layout.ImageIndexFromPath(filepath.Join(o.Out, "oci"))
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := index.IndexManifest()
		if err != nil {
			t.Fatal(err)
		}
		if len(manifest.Manifests) != 2 {
			t.Fatalf("the index has %d images, want 2", len(manifest.Manifests))
		}
		digest, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest.String())
		data, err := os.ReadFile(filepath.Join(o.Out, "muster-arm64.tar"))
		if err != nil {
			t.Fatal(err)
		}
		tars = append(tars, string(data))
	}
	if digests[0] != digests[1] || tars[0] != tars[1] {
		t.Fatalf("two builds differ: %v", digests)
	}
}

func TestAMissingOptionIsNamed(t *testing.T) {
	o := options(t)
	o.Version = ""
	if err := Build(t.Context(), o); err == nil || !strings.Contains(err.Error(), "Version is missing") {
		t.Fatalf("got %v", err)
	}
}
