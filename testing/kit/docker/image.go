//go:build linux

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"

	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// Program is the path of package workload's program in every image.
const Program = "/workload"

// rootfs returns the file system of every image, a tar with the program alone. The program
// is built apart from the test, which is not static under the race detector.
var rootfs = sync.OnceValues(func() ([]byte, error) {
	root, err := toolchain.Root()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "muster-workload-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "workload")
	var out bytes.Buffer
	err = toolchain.Run(context.Background(), &out, root, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, "./testing/kit/docker/workload")
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, &out)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(Program, "/"), Mode: 0o755, Size: int64(len(text))}); err != nil {
		return nil, err
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	return archive.Bytes(), w.Close()
})

// Image imports an image with the program, as `docker import` does, and returns the digest
// that is its id. changes are instructions of a Dockerfile, such as CMD ["1.0.0"]. The same
// changes are the same image.
func (e *Engine) Image(t testing.TB, changes ...string) string {
	t.Helper()
	key := strings.Join(changes, "\n")
	if id := e.made[key]; id != "" {
		return id
	}
	archive, err := rootfs()
	if err != nil {
		t.Fatal(err)
	}
	id, err := e.importImage(t.Context(), archive, append([]string{`ENTRYPOINT ["` + Program + `"]`}, changes...))
	if err != nil {
		t.Fatalf("import an image: %v", err)
	}
	e.made[key] = id
	return id
}

func (e *Engine) importImage(ctx context.Context, archive []byte, changes []string) (string, error) {
	answer, err := e.client.ImageImport(ctx, client.ImageImportSource{Source: bytes.NewReader(archive), SourceName: "-"}, "", client.ImageImportOptions{Changes: changes})
	if err != nil {
		return "", err
	}
	defer answer.Close()
	var last struct{ Status, Error string }
	for dec := json.NewDecoder(answer); ; {
		err := dec.Decode(&last)
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", err
		}
	}
	if !strings.HasPrefix(last.Status, "sha256:") {
		return "", fmt.Errorf("the engine's answer is %+v, want the id of the image", last)
	}
	return last.Status, nil
}
