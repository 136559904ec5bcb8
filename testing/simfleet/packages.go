package simfleet

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"

	"github.com/muster-fleet/muster/packaging/build"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/packaging/trust"
)

// The components of the fleet.
const (
	webComponent       = "web"
	collectorComponent = "collector"
)

// programBytes is the size of each program in a package.
const programBytes = 200_000

// publisher builds packages whose programs do nothing, and signs them.
type publisher struct {
	dir string // of the program
	key trust.PrivateKey
}

func newPublisher(dir string, seed uint64) (*publisher, error) {
	var b [32]byte
	b[0], b[1] = byte(seed), byte(seed>>8)
	_, key, err := trust.GenerateKey(rand.NewChaCha8(b))
	if err != nil {
		return nil, err
	}
	p := &publisher{dir: filepath.Join(dir, "program"), key: key}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, err
	}
	// Bytes that cannot be compressed, so that packages are not suspiciously small.
	body := make([]byte, programBytes)
	rand.NewChaCha8(b).Read(body)
	return p, os.WriteFile(p.program(), append([]byte("#!/bin/sh\nexec sleep infinity\n"), body...), 0o755)
}

func (p *publisher) program() string { return filepath.Join(p.dir, "program") }

// pkg is a signed package.
type pkg struct {
	file      string
	data, sig []byte
}

// build returns the package of a version for a machine: of the agent, or of a component.
func (p *publisher) build(ctx context.Context, component, version string, m machine) (pkg, error) {
	spec := build.Spec{Manifest: manifest.Package{Version: version, OS: m.os, Arch: m.arch}}
	add := func(name string) string {
		name = manifest.ProgramName(m.os, name)
		spec.Files = append(spec.Files, build.File{Name: name, Path: p.program(), Mode: 0o755})
		return name
	}
	if component == "" {
		add("muster-agent")
		add("muster-watcher")
		spec.Manifest.Hash = hashOf(version)
	} else {
		spec.Manifest.Component = &manifest.Component{Name: component, Runtime: "process", Settings: map[string]any{"program": add("bin/" + component)}}
		spec.Manifest.Hash = hashOf(component + version)
	}
	spec.Format = build.TarGz
	if m.os == "windows" {
		spec.Format = build.Zip
	}
	var b bytes.Buffer
	if _, err := build.Build(ctx, spec, &b); err != nil {
		return pkg{}, err
	}
	out := pkg{file: spec.Manifest.ArchiveName(spec.Format), data: b.Bytes()}
	var err error
	out.sig, err = p.key.Sign(out.file, bytes.NewReader(out.data))
	return out, err
}

// hashOf returns the commit's hash of a version.
func hashOf(version string) string {
	var b [32]byte
	copy(b[:], version)
	r := rand.NewChaCha8(b)
	return fmt.Sprintf("%016x%016x%08x", r.Uint64(), r.Uint64(), uint32(r.Uint64()))
}

// publish pushes a version for all platforms.
func (f *Fleet) publish(ctx context.Context, component string, versions ...string) error {
	for _, version := range versions {
		for _, m := range platforms {
			p, err := f.publisher.build(ctx, component, version, m)
			if err != nil {
				return err
			}
			header := map[string]string{"Muster-Signature": base64.StdEncoding.EncodeToString(p.sig)}
			if err := f.api(ctx, "ci", http.MethodPut, "/api/v1/packages/"+p.file, p.data, nil, header); err != nil {
				return err
			}
		}
	}
	return nil
}
