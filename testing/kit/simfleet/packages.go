package simfleet

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
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
	dir                 string // of the program
	rootKey, targetsKey tuf.PrivateKey
	root, targets       []byte // what is published
}

func newPublisher(dir string, seed uint64) (*publisher, error) {
	var b [32]byte
	b[0], b[1] = byte(seed), byte(seed>>8)
	p := &publisher{dir: filepath.Join(dir, "program")}
	random := rand.NewChaCha8(b)
	var err error
	if p.rootKey, err = tuf.GenerateKey(random, "ann"); err != nil {
		return nil, err
	}
	if p.targetsKey, err = tuf.GenerateKey(random, "ci"); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, err
	}
	// Bytes that cannot be compressed, so that packages are not suspiciously small.
	body := make([]byte, programBytes)
	rand.NewChaCha8(b).Read(body)
	return p, os.WriteFile(p.program(), append([]byte("#!/bin/sh\nexec sleep infinity\n"), body...), 0o755)
}

func (p *publisher) program() string { return filepath.Join(p.dir, "program") }

// pkg is a package, as the targets name it.
type pkg struct {
	tuf.Target
	data []byte
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
	sum := sha512.Sum512(b.Bytes())
	return pkg{tuf.Target{
		Component: component, Version: version, OS: m.os, Arch: m.arch, Format: spec.Format,
		Size: int64(b.Len()), Unpacked: int64(len(spec.Files)) * programBytes, SHA512: hex.EncodeToString(sum[:]),
	}, b.Bytes()}, nil
}

// publishRoot publishes the root that hosts trust.
func (f *Fleet) publishRoot(ctx context.Context) error {
	var state struct {
		OnlineKeys []string `json:"online_keys"`
	}
	if err := f.api(ctx, "ci", http.MethodGet, "/api/v1/trust", nil, &state); err != nil {
		return err
	}
	if len(state.OnlineKeys) == 0 {
		return errors.New("the server has no online key")
	}
	online, err := tuf.ParsePublicKey(state.OnlineKeys[0])
	if err != nil {
		return err
	}
	p := f.publisher
	root, err := tuf.NewRoot(tuf.RootSpec{
		Root:     tuf.Signers{Keys: []tuf.PublicKey{p.rootKey.Public()}, Threshold: 1},
		Targets:  tuf.Signers{Keys: []tuf.PublicKey{p.targetsKey.Public()}, Threshold: 1},
		Snapshot: online, Timestamp: online, Expires: time.Now().Add(tuf.RootLife),
	})
	if err == nil {
		p.root, err = tuf.Sign(root, nil, p.rootKey)
	}
	if err != nil {
		return err
	}
	return f.post(ctx, "ci", "/api/v1/trust/files", object{"files": [][]byte{p.root}}, nil)
}

// sign adds packages to the targets, and publishes these.
func (f *Fleet) sign(ctx context.Context, packages []pkg) error {
	p := f.publisher
	edit, err := tuf.EditTargets(p.targets, time.Now().Add(tuf.TargetsLife))
	if err != nil {
		return err
	}
	for _, pkg := range packages {
		if err := edit.AddTarget(pkg.Target); err != nil {
			return err
		}
	}
	targets, err := edit.Bytes()
	if err == nil {
		targets, err = tuf.Sign(targets, p.root, p.targetsKey)
	}
	if err != nil {
		return err
	}
	p.targets = targets
	return f.post(ctx, "ci", "/api/v1/trust/files", object{"files": [][]byte{targets}}, nil)
}

// hashOf returns the commit's hash of a version.
func hashOf(version string) string {
	var b [32]byte
	copy(b[:], version)
	r := rand.NewChaCha8(b)
	return fmt.Sprintf("%016x%016x%08x", r.Uint64(), r.Uint64(), uint32(r.Uint64()))
}

// publish pushes versions for all platforms, and signs them.
func (f *Fleet) publish(ctx context.Context, component string, versions ...string) error {
	var packages []pkg
	for _, version := range versions {
		for _, m := range platforms {
			p, err := f.publisher.build(ctx, component, version, m)
			if err != nil {
				return err
			}
			if err := f.api(ctx, "ci", http.MethodPut, "/api/v1/packages/"+p.FileName(), p.data, nil); err != nil {
				return err
			}
			packages = append(packages, p)
		}
	}
	return f.sign(ctx, packages)
}
