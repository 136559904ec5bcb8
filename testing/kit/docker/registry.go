//go:build linux

package docker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// Registry is a registry of images on loopback, where engines use HTTP. It ends with the
// test.
type Registry struct {
	// Host is the registry in the names of images.
	Host string
	// Requests counts what was asked.
	Requests atomic.Int64

	server *httptest.Server
}

// StartRegistry starts an empty registry.
func StartRegistry(t testing.TB) *Registry {
	r := &Registry{}
	serve := registry.New(registry.Logger(slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)))
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.Requests.Add(1)
		serve.ServeHTTP(w, req)
	}))
	t.Cleanup(r.server.Close)
	r.Host = strings.TrimPrefix(r.server.URL, "http://")
	return r
}

// Stop ends the registry: connections to it are refused.
func (r *Registry) Stop() { r.server.Close() }

// Push pushes an image with the program, and returns its name with the digest.
func (r *Registry) Push(t testing.TB, repository string, platform v1.Platform, config v1.ImageConfig) string {
	t.Helper()
	layer, err := rootfs()
	if err != nil {
		t.Fatal(err)
	}
	config.Entrypoint = []string{Program}
	image := encode(t, v1.Image{Platform: platform, Config: config, RootFS: v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(layer)}}})
	manifest := encode(t, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: v1.MediaTypeImageManifest,
		Config:    v1.Descriptor{MediaType: v1.MediaTypeImageConfig, Digest: digest.FromBytes(image), Size: int64(len(image))},
		Layers:    []v1.Descriptor{{MediaType: v1.MediaTypeImageLayer, Digest: digest.FromBytes(layer), Size: int64(len(layer))}},
	})
	id := digest.FromBytes(manifest)
	err = r.send(t, http.MethodPost, fmt.Sprintf("/v2/%s/blobs/uploads/?digest=%s", repository, digest.FromBytes(layer)), "application/octet-stream", layer)
	if err == nil {
		err = r.send(t, http.MethodPost, fmt.Sprintf("/v2/%s/blobs/uploads/?digest=%s", repository, digest.FromBytes(image)), "application/octet-stream", image)
	}
	if err == nil {
		err = r.send(t, http.MethodPut, fmt.Sprintf("/v2/%s/manifests/%s", repository, id), v1.MediaTypeImageManifest, manifest)
	}
	if err != nil {
		t.Fatalf("push an image: %v", err)
	}
	return r.Host + "/" + repository + "@" + id.String()
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func (r *Registry) send(t testing.TB, method, path, contentType string, body []byte) error {
	req, err := http.NewRequestWithContext(t.Context(), method, r.server.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	return nil
}
