// Package runtimes defines the settings that components give to the runtimes process,
// systemd and docker. The adapters of agents decode their settings with it, and those who
// build, inspect or store packages check them with it, so that a publisher hears of a mistake
// before a host does. It looks at nothing but the package.
//
// An agent may have more runtimes. The settings of those are checked on hosts only.
package runtimes

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// Names of the runtimes, as in the manifests of components.
const (
	NameProcess = "process"
	NameSystemd = "systemd"
	NameDocker  = "docker"
)

// Names returns the names of all runtimes that have their settings here.
func Names() []string { return []string{NameSystemd, NameProcess, NameDocker} }

// Settings are those of one runtime.
type Settings interface {
	// complete fills in the defaults, and returns an error that names all values that are
	// invalid or contradict the rest of the description.
	complete(c *manifest.Component) error
	// needs returns the files of the package that the settings name.
	needs() []need
}

// need is a file that must be in the package.
type need struct {
	field, file string
	executable  bool
}

// check returns an error unless the package has the file. files are all of its home, and whether
// they are executable.
func (n need) check(files map[string]bool) error {
	executable, ok := files[n.file]
	switch {
	case !ok:
		return fmt.Errorf("%q is not in the package: %s", n.file, manifest.AddFile(n.file))
	case n.executable && !executable:
		return fmt.Errorf("%q is not executable: build the package again after chmod +x of that file", n.file)
	}
	return nil
}

// settingsOf returns the settings of a runtime, or nil if they are not here.
func settingsOf(runtime string) Settings {
	switch runtime {
	case NameProcess:
		return &Process{}
	case NameSystemd:
		return &Systemd{}
	case NameDocker:
		return &Docker{}
	}
	return nil
}

// Check returns an error that names all mistakes in the description of a component that its
// package shows. files are those of the package's home, and whether they are executable.
func Check(c *manifest.Component, files map[string]bool) error {
	has := func(name string) bool {
		_, ok := files[name]
		return ok
	}
	errs := []error{c.CheckFiles(has)}
	c.Programs(func(field string, h manifest.Hook) {
		if path.IsAbs(h.Exec[0]) {
			return // of the host
		}
		if err := (need{file: h.Exec[0], executable: true}).check(files); err != nil {
			errs = append(errs, fmt.Errorf("%s.exec: %w", field, err))
		}
	})
	s := settingsOf(c.Runtime)
	if s == nil {
		return errors.Join(errs...)
	}
	if err := Decode(c, s); err != nil {
		return errors.Join(append(errs, err)...)
	}
	var p problems
	for _, n := range s.needs() {
		if err := n.check(files); err != nil {
			p.add(n.field, "%v", err)
		}
	}
	return errors.Join(append(errs, p.join())...)
}

// problems are what is wrong with settings, each with its field.
type problems []error

func (p *problems) add(field, format string, args ...any) {
	if field != "" {
		field = "." + field
	}
	*p = append(*p, fmt.Errorf("settings%s: %s", field, fmt.Sprintf(format, args...)))
}

// join sorts them, since they are found in maps too and the answer to a file is to be the same.
func (p *problems) join() error {
	slices.SortStableFunc(*p, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(*p...)
}

// inPackage reports whether name is that of a file in a package, in its shortest form.
func inPackage(name string) bool {
	return name != "." && fs.ValidPath(name) && !strings.ContainsAny(name, "\x00\\")
}
