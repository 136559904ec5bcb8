package packagecmd

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

type buildOptions struct {
	files    []string
	version  string
	hash     string
	snapshot bool
	goos     string
	goarch   string
	format   string
	out      string
	checks   string
	// component is the file with the description of a component.
	component string
}

func newBuild() *cobra.Command {
	var o buildOptions
	cmd := &cobra.Command{
		Use:   "build --version VERSION --file NAME=PATH...",
		Short: "Build a package from files",
		Long: `Write a package whose versioned home holds the given files. Builds are reproducible: the
same files give the same archive, byte for byte. Its entries are dated 1980-01-01, or by
$SOURCE_DATE_EPOCH (seconds since 1970) if that is set.

With --component it is the package of a component, a workload that agents run and upgrade:
` + "`muster package example`" + ` prints a description of one. It needs no agent, and with the
runtime docker no files.`,
		Example: `  muster package build --version 1.1.0 \
    --file muster-agent=bin/muster-agent --file muster-watcher=bin/muster-watcher

  muster package build --version 1.2.0-SNAPSHOT --hash $(git rev-parse HEAD) \
    --os windows --arch amd64 --format zip --file muster-agent.exe=bin/muster-agent.exe

  muster package build --version 1.1.0 --file muster-agent=… --file muster-watcher=… --checks checks.yml
  with checks.yml:
    - {name: answers, http: "http://127.0.0.1:8080/health", timeout: 2s, threshold: 3}
    - {name: listens, tcp: "127.0.0.1:9000"}
    - {name: disk, exec: [plugins/check-disk, --free, 10%]}

  muster package build --version 2.4.0 --component component.yaml \
    --file bin/web=bin/web --file web.service=web.service --file conf/web.conf=web.conf`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBuild(cmd, o) },
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.files, "file", nil, "file to put into the package, as NAME=PATH; repeatable")
	f.StringVar(&o.version, "version", "", "version, such as 1.1.0 or 1.1.0-SNAPSHOT")
	f.StringVar(&o.hash, "hash", "", "commit the files were built from (default: derived from the files)")
	f.BoolVar(&o.snapshot, "snapshot", false, "mark the package as a snapshot")
	f.StringVar(&o.goos, "os", runtime.GOOS, "operating system of the hosts, as a GOOS value")
	f.StringVar(&o.goarch, "arch", runtime.GOARCH, "architecture of the hosts, as a GOARCH value")
	f.StringVar(&o.format, "format", "", "tar.gz or zip (default: zip for windows, else tar.gz)")
	f.StringVar(&o.checks, "checks", "", "YAML file with the checks that this version must pass while it is watched")
	f.StringVar(&o.component, "component", "", "YAML file that describes the component whose package it is")
	f.StringVar(&o.out, "out", "", "archive to write, or its folder (default: muster-agent-VERSION-OS-ARCH.FORMAT or muster-component-NAME-… in the current folder)")
	_ = cmd.MarkFlagFilename("component", "yaml", "yml")
	return cmd
}

func runBuild(cmd *cobra.Command, o buildOptions) error {
	installed := build.TarGz // what agents ask for
	if o.goos == "windows" {
		installed = build.Zip
	}
	if o.format == "" {
		o.format = installed
	}
	spec, err := o.spec(os.Getenv("SOURCE_DATE_EPOCH"))
	if err != nil {
		return err
	}
	if known := o.format == build.TarGz || o.format == build.Zip; known && spec.Manifest.Component == nil && o.format != installed {
		return hinted(fmt.Errorf("--format is %s, and agents on %s install packages in %s only", o.format, o.goos, installed), "--format %s", installed)
	}
	name := spec.Manifest.ArchiveName(o.format)
	out := outPath(o.out, name)
	p := NewProgress(cmd.ErrOrStderr(), "building "+name, 0)
	var m manifest.Manifest
	err = writeAtomically(out, 0o644, func(w io.Writer) error {
		m, err = build.Build(cmd.Context(), spec, p.writer(w))
		return err
	})
	p.Done()
	if err != nil {
		return err
	}
	what := ""
	if c := m.Package.Component; c != nil {
		what = "component " + c.Name + ", "
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n  %sversion %s, hash %s, for %s/%s\n", out, what, m.Package.FullVersion(), m.Package.Hash, o.goos, o.goarch)
	if note := uncheckedSettings(m.Package.Component); note != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "Note: %s.\n", note)
	}
	if base := filepath.Base(out); base != name {
		// Agents derive the name from the version.
		fmt.Fprintf(cmd.ErrOrStderr(), "Note: agents request this package as %s, not %s.\n", name, base)
	}
	return err
}

func (o buildOptions) spec(sourceDateEpoch string) (build.Spec, error) {
	var none build.Spec
	if o.version == "" {
		return none, hinted(errors.New("--version is missing"), "--version 1.1.0")
	}
	version, snapshot := manifest.SplitSnapshot(o.version)
	if _, err := manifest.ParseVersion(version); err != nil {
		return none, fmt.Errorf("--version: %w", err)
	}
	component, err := readComponent(o.component)
	if err != nil {
		return none, err
	}
	files, err := parseFiles(o.files)
	if err != nil {
		return none, err
	}
	if len(files) == 0 && component == nil {
		return none, hinted(errors.New("--file is missing: the package would be empty"), "--file muster-agent=PATH")
	}
	at, err := parseEpoch(sourceDateEpoch)
	if err != nil {
		return none, err
	}
	checks, err := readChecks(o.checks)
	if err != nil {
		return none, err
	}
	return build.Spec{
		Manifest: manifest.Package{
			Version: version, Snapshot: snapshot || o.snapshot, Hash: strings.ToLower(o.hash), OS: o.goos, Arch: o.goarch,
			Checks: checks, Component: component,
		},
		Files:  files,
		Format: o.format,
		Time:   at,
	}, nil
}

func parseFiles(args []string) ([]build.File, error) {
	files := make([]build.File, len(args))
	for i, arg := range args {
		name, path, ok := strings.Cut(arg, "=")
		if !ok || name == "" || path == "" {
			return nil, hinted(fmt.Errorf("--file is %q, want NAME=PATH", arg), "--file muster-agent=%s", arg)
		}
		files[i] = build.File{Name: name, Path: path}
	}
	return files, nil
}

// readChecks reads a list of checks. An unknown key is an error: a check that silently
// does less than its author wrote is worse than none.
func readChecks(file string) ([]manifest.Check, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("--checks: %w", err)
	}
	defer f.Close()
	var checks []manifest.Check
	dec := yaml.NewDecoder(f)
	dec.KnownFields(true)
	if err := dec.Decode(&checks); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("--checks: %s: want a list such as `- {name: listens, tcp: \"127.0.0.1:9000\"}`: %w", file, yamlProblem(err))
	}
	for i, c := range checks {
		if err := c.Validate(); err != nil {
			return nil, fmt.Errorf("--checks: %s: [%d] %q: %w", file, i, c.Name, err)
		}
	}
	return checks, nil
}

func parseEpoch(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	seconds, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("$SOURCE_DATE_EPOCH is %q, want seconds since 1970 or nothing", s)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

func outPath(out, name string) string {
	if out == "" {
		return name
	}
	if fi, err := os.Stat(out); err == nil && fi.IsDir() || strings.HasSuffix(out, "/") {
		return filepath.Join(out, name)
	}
	return out
}
