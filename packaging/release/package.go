package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // registers the format
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // registers the format

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/serverlayout"
)

const (
	deb = "deb"
	rpm = "rpm"
)

const (
	homepage   = "https://github.com/muster-fleet/muster"
	maintainer = "Muster <muster@muster-fleet.invalid>"
)

// pkg is a package of the system, in every format.
type pkg struct {
	name, arch, summary, description string
	// scripts is the folder with the scripts of the package manager.
	scripts string
	files   []file
	// zsh is the completion for zsh, whose place differs between systems.
	zsh string
}

// file is a file of a package.
type file struct {
	to string
	// from is its path, or where a link leads to.
	from string
	kind string
	mode os.FileMode
}

// packageFile returns the path of a file in packaging/release/linux.
func (r *release) packageFile(name ...string) string {
	return filepath.Join(append([]string{r.Root, "packaging", "release", "linux"}, name...)...)
}

// serverPackage describes the package of the server.
func (r *release) serverPackage(p programs) (*pkg, error) {
	k := &pkg{
		name: "muster", arch: p.arch, scripts: r.packageFile("server"),
		summary:     "server that upgrades a fleet of hosts",
		description: "Muster moves a fleet of hosts to a new version of their agent, and back.\nThis is the server: one program, with its web UI, and one folder of data.",
		files: []file{
			{"/usr/libexec/muster/muster", p.server, files.TypeFile, 0o755},
			{"/usr/libexec/muster/activate", r.packageFile("server", "activate"), files.TypeFile, 0o755},
			{"/usr/lib/sysusers.d/muster.conf", r.packageFile("server", "muster.sysusers"), files.TypeFile, 0o644},
			{"/usr/lib/tmpfiles.d/muster.conf", r.packageFile("server", "muster.tmpfiles"), files.TypeFile, 0o644},
			{"/etc/muster/server.yml", r.configFile(), files.TypeConfigNoReplace, 0o640},
		},
	}
	layout := serverlayout.Layout{Disk: disk.OS{}, Prefix: "/usr", SysConfDir: "/etc"}
	for _, u := range layout.Units(serverlayout.DefaultUser, "/etc/muster/server.yml") {
		from := filepath.Join(r.work, u.Name)
		if err := os.WriteFile(from, []byte(u.Text), 0o644); err != nil {
			return nil, err
		}
		k.files = append(k.files, file{"/usr/lib/systemd/system/" + u.Name, from, files.TypeFile, 0o644})
	}
	return k, r.addDocuments(k)
}

// agentPackage describes the package of the agent, whose archive has the manifest m.
func (r *release) agentPackage(p programs, m manifest.Manifest) (*pkg, error) {
	dir := filepath.Dir(p.agent)
	manifestFile, versionFile := filepath.Join(dir, manifest.FileName), filepath.Join(dir, "VERSION")
	text, err := m.Encode()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.WriteFile(manifestFile, text, 0o644), os.WriteFile(versionFile, []byte(m.Package.FullVersion()+"\n"), 0o644)); err != nil {
		return nil, err
	}
	k := &pkg{
		name: "muster-agent", arch: p.arch, scripts: r.packageFile("agent"),
		summary:     "self-upgrading agent of a Muster fleet",
		description: "The agent of a host that a Muster server upgrades. Installing the package\nenrols nothing: it prints the command that does.",
		files: []file{
			{"/usr/libexec/muster-agent/muster-agent", p.agent, files.TypeFile, 0o755},
			{"/usr/libexec/muster-agent/muster-watcher", p.watcher, files.TypeFile, 0o755},
			{"/usr/libexec/muster-agent/manifest.yaml", manifestFile, files.TypeFile, 0o644},
			{"/usr/libexec/muster-agent/VERSION", versionFile, files.TypeFile, 0o644},
			{"/usr/bin/muster-agent", "/usr/lib/muster-agent/default/muster-agent", files.TypeSymlink, 0},
			{"/usr/lib/muster-agent/default", "/etc/muster-agent", files.TypeSymlink, 0},
		},
	}
	return k, r.addDocuments(k)
}

// addDocuments adds the pages of the manual, the completions, and what Debian wants of every
// package.
func (r *release) addDocuments(k *pkg) error {
	from := r.documentsOf(k.name)
	pages, err := filepath.Glob(filepath.Join(from, "man", "*.1"))
	if err != nil || len(pages) == 0 {
		return fmt.Errorf("no pages of the manual in %s: %w", from, err)
	}
	for _, page := range pages {
		packed := page + ".gz"
		if err := pack(page, packed); err != nil {
			return err
		}
		k.files = append(k.files, file{"/usr/share/man/man1/" + filepath.Base(packed), packed, files.TypeFile, 0o644})
	}
	changelog := filepath.Join(r.work, k.name+"-changelog")
	text := fmt.Sprintf("%s (%s) stable; urgency=medium\n\n  * See %s/blob/main/CHANGELOG.md\n\n -- %s  %s\n", k.name, r.Version, homepage, maintainer, r.Time.Format(time.RFC1123Z))
	if err := os.WriteFile(changelog, []byte(text), 0o644); err != nil {
		return err
	}
	if err := pack(changelog, changelog+".gz"); err != nil {
		return err
	}
	k.zsh = filepath.Join(from, "_"+k.name)
	k.files = append(k.files,
		// rpm removes only folders that a package names.
		file{"/usr/libexec/" + k.name, "", files.TypeDir, 0o755},
		file{"/usr/share/doc/" + k.name, "", files.TypeDir, 0o755},
		file{"/usr/share/bash-completion/completions/" + k.name, filepath.Join(from, k.name+".bash"), files.TypeFile, 0o644},
		file{"/usr/share/fish/vendor_completions.d/" + k.name + ".fish", filepath.Join(from, k.name+".fish"), files.TypeFile, 0o644},
		file{"/usr/share/doc/" + k.name + "/copyright", r.packageFile("copyright"), files.TypeFile, 0o644},
		file{"/usr/share/doc/" + k.name + "/changelog.gz", changelog + ".gz", files.TypeFile, 0o644},
	)
	return nil
}

// pack compresses a file. The result has no name and no time, so that it is reproducible.
func pack(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err = z.Write(text); err == nil {
		err = z.Close()
	}
	return errors.Join(err, os.WriteFile(to, out.Bytes(), 0o644))
}

// writePackages writes a package in every format.
func (r *release) writePackages(k *pkg) error {
	for _, format := range []string{deb, rpm} {
		if err := r.writePackage(k, format); err != nil {
			return fmt.Errorf("%s package %s: %w", format, k.name, err)
		}
	}
	return nil
}

func (r *release) writePackage(k *pkg, format string) (err error) {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	info, err := r.info(k, format)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(r.dir, packager.ConventionalFileName(info)))
	if err != nil {
		return err
	}
	return errors.Join(packager.Package(info, f), f.Close())
}

// info describes a package to the library.
func (r *release) info(k *pkg, format string) (*nfpm.Info, error) {
	script := func(name string) string { return filepath.Join(k.scripts, name) }
	info := &nfpm.Info{
		Name: k.name, Arch: k.arch, Platform: "linux", Version: r.Version, Section: "admin", Priority: "optional",
		Maintainer: maintainer, Description: k.summary + "\n" + k.description, Homepage: homepage, License: "Apache-2.0",
		DisableGlobbing: true, MTime: r.Time,
		Overridables: nfpm.Overridables{
			Scripts: nfpm.Scripts{PostInstall: script("postinst"), PreRemove: script("prerm"), PostRemove: script("postrm")},
			// The host that builds is no part of the package.
			RPM: nfpm.RPM{BuildHost: "muster", Summary: k.summary, Compression: "gzip:9"},
		},
	}
	zsh := "/usr/share/zsh/vendor-completions/"
	if format == rpm {
		zsh = "/usr/share/zsh/site-functions/"
	}
	for _, f := range append(k.files, file{zsh + "_" + k.name, k.zsh, files.TypeFile, 0o644}) {
		c := &files.Content{Source: f.from, Destination: f.to, Type: f.kind}
		c.FileInfo = &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode, MTime: r.Time}
		info.Contents = append(info.Contents, c)
	}
	nfpm.WithDefaults(info)
	err := nfpm.PrepareForPackager(info, format)
	return info, err
}
