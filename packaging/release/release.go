package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/release/chart"
	"github.com/muster-fleet/muster/packaging/release/image"
)

// tags are the build tags of every program, as in testing/kit/toolchain.
const tags = "nomsgpack"

// release is a release that is being made.
type release struct {
	Options
	// dir gets the files that are published, work everything else.
	dir, work string
}

// Build makes a release and returns its folder. The folder has its name once it is complete.
func Build(ctx context.Context, o Options) (dir string, err error) {
	dir = filepath.Join(o.Out, o.Version)
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(o.Out, ".work-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	r := &release{Options: o, dir: filepath.Join(work, "release"), work: work}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		return "", err
	}
	for _, step := range []func(context.Context) error{r.documents, r.configuration, r.linux, r.others, r.chart, r.sums} {
		if err := step(ctx); err != nil {
			return "", err
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, os.Rename(r.dir, dir)
}

// linux makes everything for Linux.
func (r *release) linux(ctx context.Context) error {
	var images []image.Options
	for _, arch := range r.Architectures {
		p, err := r.programs(ctx, "linux", arch, true)
		if err != nil {
			return err
		}
		m, err := r.agentArchive(ctx, p)
		if err != nil {
			return err
		}
		if err := r.serverArchive(p); err != nil {
			return err
		}
		server := image.Options{Arch: p.arch, Program: p.server, Version: r.Version, Source: homepage, Created: r.Time}
		if err := image.Write(filepath.Join(r.dir, fmt.Sprintf("muster-image-%s-linux-%s.tar", r.Version, p.arch)), server); err != nil {
			return err
		}
		images = append(images, server)
		for _, info := range []func() (*pkg, error){
			func() (*pkg, error) { return r.serverPackage(p) },
			func() (*pkg, error) { return r.agentPackage(p, m) },
		} {
			made, err := info()
			if err != nil {
				return err
			}
			if err := r.writePackages(made); err != nil {
				return err
			}
		}
		if err := r.partsLists(p); err != nil {
			return err
		}
	}
	return image.WriteAll(filepath.Join(r.dir, fmt.Sprintf("muster-image-%s-oci.tar", r.Version)), images)
}

// chart packages the Helm chart, which is for all architectures.
func (r *release) chart(context.Context) error {
	_, err := chart.Write(r.dir, chart.Options{Dir: filepath.Join(r.Root, "packaging", "release", "kubernetes", "chart"), Version: r.Version, Time: r.Time})
	return err
}

// others makes the agent's archives for other systems, which have no packages.
func (r *release) others(ctx context.Context) error {
	if !r.OtherSystems {
		return nil
	}
	for _, system := range [][2]string{{"darwin", "arm64"}, {"windows", "amd64"}} {
		p, err := r.programs(ctx, system[0], system[1], false)
		if err != nil {
			return err
		}
		if _, err := r.agentArchive(ctx, p); err != nil {
			return err
		}
		if err := r.partsLists(p); err != nil {
			return err
		}
	}
	return nil
}

// programs are the built programs for one platform; server is empty where there is none.
type programs struct {
	os, arch               string
	server, agent, watcher string
}

func (r *release) programs(ctx context.Context, goos, goarch string, server bool) (programs, error) {
	suffix := ""
	if goos == "windows" {
		suffix = ".exe"
	}
	dir := filepath.Join(r.work, goos+"-"+goarch)
	p := programs{os: goos, arch: goarch, agent: filepath.Join(dir, "muster-agent"+suffix), watcher: filepath.Join(dir, "muster-watcher"+suffix)}
	targets := map[string]string{"./agent": p.agent, "./watcher": p.watcher}
	if server {
		p.server = filepath.Join(dir, "muster")
		targets["./server"] = p.server
	}
	for target, to := range targets {
		args := []string{"build", "-trimpath", "-buildvcs=false", "-tags", tags, "-ldflags", "-s -w -X main.version=" + r.Version, "-o", to, target}
		if _, err := goTool(ctx, r.Root, []string{"GOOS=" + goos, "GOARCH=" + goarch}, args...); err != nil {
			return p, err
		}
	}
	return p, nil
}

// goTool runs go and returns what it prints; its error has the rest of the output.
func goTool(ctx context.Context, dir string, env []string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir, c.Env = dir, slices.Concat(os.Environ(), []string{"CGO_ENABLED=0"}, env)
	out, err := c.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w\n%s", err, exit.Stderr)
		}
		return "", fmt.Errorf("go %s: %w", strings.Join(args, " "), err)
	}
	return string(out), nil
}

// agentArchive makes the agent's archive as `muster package build` does, and returns its manifest.
func (r *release) agentArchive(ctx context.Context, p programs) (m manifest.Manifest, err error) {
	version, snapshot := manifest.SplitSnapshot(r.Version)
	spec := build.Spec{
		Manifest: manifest.Package{Version: version, Snapshot: snapshot, OS: p.os, Arch: p.arch},
		Files: []build.File{
			{Name: filepath.Base(p.agent), Path: p.agent, Mode: 0o755},
			{Name: filepath.Base(p.watcher), Path: p.watcher, Mode: 0o755},
		},
		Format: build.TarGz, Time: r.Time,
	}
	if p.os == "windows" {
		spec.Format = build.Zip
	}
	f, err := os.Create(filepath.Join(r.dir, spec.Manifest.ArchiveName(spec.Format)))
	if err != nil {
		return m, err
	}
	m, err = build.Build(ctx, spec, f)
	return m, errors.Join(err, f.Close())
}
