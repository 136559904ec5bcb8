// Package image makes the server's container images, without a container engine. The release program
// calls it with the built servers; engines and the tools of registries read what it writes.
package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// user is the user and the group of the server in the container.
	user = 65532
	// dataFolder is the only folder that the server writes to, and needs a volume.
	dataFolder = "/var/lib/muster"
)

// Options say what is in an image. All fields are required.
type Options struct {
	Arch    string // amd64 or arm64
	Program string // path of the static program muster for it
	Version string
	Source  string // URL of the source
	Created time.Time
}

// Write writes an image as a file that `docker load` reads. The same options give the same bytes.
func Write(file string, o Options) error {
	tag, err := name.NewTag("muster:" + o.Version)
	if err != nil {
		return fmt.Errorf("image: version: %w", err)
	}
	img, err := o.image()
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return tarball.WriteToFile(file, tag, img)
}

// WriteAll writes the images of all architectures as one file, an OCI image layout in a tar file, from
// which skopeo and crane push one name to a registry. The options differ in Arch and Program only.
func WriteAll(file string, all []Options) (err error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, o := range all {
		img, err := o.image()
		if err != nil {
			return fmt.Errorf("image: %w", err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: o.Arch}}})
	}
	dir, err := os.MkdirTemp(filepath.Dir(file), ".layout-")
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": all[0].Version}))
	}
	if err == nil {
		err = archive(file, dir, all[0].Created)
	}
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

// archive writes a folder as a tar file, whose files are of root and of one time.
func archive(file, dir string, at time.Time) error {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	w := tar.NewWriter(out)
	err = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		return add(w, at, entry{filepath.ToSlash(inside), 0o644, 0, data})
	})
	return errors.Join(err, w.Close(), out.Close())
}

func (o Options) image() (v1.Image, error) {
	files, err := o.files()
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: o.Created.UTC()}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err := mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "muster release"}})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Created = "linux", o.Arch, created
	file.Config = v1.Config{
		User: fmt.Sprintf("%d:%d", user, user), Entrypoint: []string{"/muster"}, Cmd: []string{"server"}, WorkingDir: dataFolder,
		ExposedPorts: map[string]struct{}{"8220/tcp": {}, "8221/tcp": {}},
		Volumes:      map[string]struct{}{dataFolder: {}},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "muster",
			"org.opencontainers.image.version":  o.Version,
			"org.opencontainers.image.source":   o.Source,
			"org.opencontainers.image.created":  o.Created.UTC().Format(time.RFC3339),
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(img, file)
}

// files returns the only layer, as a tar file.
func (o Options) files() ([]byte, error) {
	program, err := os.ReadFile(o.Program)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, e := range []entry{
		{"etc/", 0o755, 0, nil},
		{"etc/group", 0o644, 0, fmt.Appendf(nil, "root:x:0:\nmuster:x:%d:\n", user)},
		{"etc/passwd", 0o644, 0, fmt.Appendf(nil, "root:x:0:0:root:/:/sbin/nologin\nmuster:x:%d:%d:muster:%s:/sbin/nologin\n", user, user, dataFolder)},
		{"muster", 0o755, 0, program},
		{"var/", 0o755, 0, nil},
		{"var/lib/", 0o755, 0, nil},
		{"var/lib/muster/", 0o700, user, nil},
	} {
		if err := add(w, o.Created, e); err != nil {
			return nil, errors.Join(err, w.Close())
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// entry is a file in a tar file, or a folder if its name ends with a slash.
type entry struct {
	name  string
	mode  int64
	owner int
	data  []byte
}

func add(w *tar.Writer, at time.Time, e entry) error {
	err := w.WriteHeader(&tar.Header{Name: e.name, Mode: e.mode, Uid: e.owner, Gid: e.owner, Size: int64(len(e.data)), ModTime: at.UTC().Truncate(time.Second), Format: tar.FormatPAX})
	if err == nil {
		_, err = w.Write(e.data)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.name, err)
	}
	return nil
}
