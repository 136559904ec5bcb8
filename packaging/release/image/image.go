// Package image makes the server's container image, without a container engine. The release program
// calls it with the built server; registries and engines read what it writes.
package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// User is the user and the group of the server in the container.
const User = 65532

// DataFolder is the only folder that the server writes to, and needs a volume.
const DataFolder = "/var/lib/muster"

// Options say what goes into the image. All fields are required.
type Options struct {
	Programs map[string]string // architecture (amd64, arm64) to the path of the static muster program
	Version  string
	Revision string // of the source
	Source   string // URL of the source
	Created  time.Time
	Out      string // folder that gets oci/ and muster-ARCH.tar
}

func (o Options) check() error {
	var errs []error
	for field, missing := range map[string]bool{
		"Programs": len(o.Programs) == 0, "Version": o.Version == "", "Revision": o.Revision == "",
		"Source": o.Source == "", "Created": o.Created.IsZero(), "Out": o.Out == "",
	} {
		if missing {
			errs = append(errs, fmt.Errorf("image: %s is missing", field))
		}
	}
	return errors.Join(errs...)
}

// Build writes the index of all architectures as an OCI layout, and for each architecture a tar file
// for docker load. The same options give the same digests.
func Build(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	tag, err := name.NewTag("muster:" + o.Version)
	if err != nil {
		return fmt.Errorf("image: Version: %w", err)
	}
	oci, err := layout.Write(filepath.Join(o.Out, "oci"), empty.Index)
	if err != nil {
		return err
	}
	for _, arch := range []string{"amd64", "arm64"} {
		if err := ctx.Err(); err != nil {
			return err
		}
		program, ok := o.Programs[arch]
		if !ok {
			continue
		}
		img, err := o.image(arch, program)
		if err != nil {
			return err
		}
		if err := oci.AppendImage(img, layout.WithPlatform(v1.Platform{OS: "linux", Architecture: arch})); err != nil {
			return err
		}
		if err := tarball.WriteToFile(filepath.Join(o.Out, "muster-"+arch+".tar"), tag, img); err != nil {
			return err
		}
	}
	return nil
}

func (o Options) image(arch, program string) (v1.Image, error) {
	files, err := o.files(program)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil })
	if err != nil {
		return nil, err
	}
	img, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer: layer, History: v1.History{Created: v1.Time{Time: o.Created.UTC()}, CreatedBy: "muster release"},
	})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", arch, v1.Time{Time: o.Created.UTC()}
	file.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", User, User), Entrypoint: []string{"/muster", "server"}, WorkingDir: DataFolder,
		ExposedPorts: map[string]struct{}{"8220/tcp": {}, "8221/tcp": {}},
		Volumes:      map[string]struct{}{DataFolder: {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "muster",
			"org.opencontainers.image.version":  o.Version,
			"org.opencontainers.image.revision": o.Revision,
			"org.opencontainers.image.source":   o.Source,
			"org.opencontainers.image.created":  o.Created.UTC().Format(time.RFC3339),
		},
	}
	return mutate.ConfigFile(img, file)
}

func (o Options) files(program string) ([]byte, error) {
	binary, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range []struct {
		name  string
		kind  byte
		mode  int64
		owner int
		data  []byte
	}{
		{"etc/", tar.TypeDir, 0o755, 0, nil},
		{"etc/group", tar.TypeReg, 0o644, 0, fmt.Appendf(nil, "root:x:0:\nmuster:x:%d:\n", User)},
		{"etc/passwd", tar.TypeReg, 0o644, 0, fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nmuster:x:%d:%d:muster:%s:/sbin/nologin\n", User, User, DataFolder)},
		{"muster", tar.TypeReg, 0o755, 0, binary},
		{"var/", tar.TypeDir, 0o755, 0, nil},
		{"var/lib/", tar.TypeDir, 0o755, 0, nil},
		{"var/lib/muster/", tar.TypeDir, 0o700, User, nil},
	} {
		if err := w.WriteHeader(&tar.Header{
			Name: f.name, Typeflag: f.kind, Mode: f.mode, Uid: f.owner, Gid: f.owner,
			Size: int64(len(f.data)), ModTime: o.Created.UTC().Truncate(time.Second), Format: tar.FormatPAX,
		}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
