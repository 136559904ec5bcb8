package layout

import (
	"path"
	"path/filepath"
	"strings"
)

// Roots are the folders of an installation.
type Roots struct {
	// Top holds all that the agent writes, absolute.
	Top string
	// Links holds the pointer and the watcher's link, absolute; empty means Top. If it is another
	// folder than Top it has a [StateLink], through which they lead, and Top has fixed links of
	// the same names that lead to them.
	Links string
}

// StateLink leads to the top folder from another folder with the pointer. So the target of the
// pointer does not name the top folder, which may be moved and be a link itself.
const StateLink = "state"

// LinkDir returns the folder of the pointer and the watcher's link.
func (r Roots) LinkDir() string {
	if r.Links == "" {
		return r.Top
	}
	return r.Links
}

// Link returns the path of the pointer or the watcher's link.
func (r Roots) Link(name string) string { return filepath.Join(r.LinkDir(), name) }

// Target returns what the link of that name has as its target if it leads to a home. It is
// relative, so that the installation can be moved.
func (r Roots) Target(home, name string) string {
	target := path.Join(home, name)
	if r.LinkDir() != r.Top {
		target = path.Join(StateLink, target)
	}
	return filepath.FromSlash(target)
}

// HomeOf returns the home that a link with this target leads to. If it leads elsewhere, the
// result is no home of this installation.
func (r Roots) HomeOf(target string) string {
	if filepath.IsAbs(target) {
		rel, err := filepath.Rel(r.Top, target)
		if err != nil { // on another volume
			return path.Dir(filepath.ToSlash(target))
		}
		return path.Dir(filepath.ToSlash(rel))
	}
	target = path.Clean(filepath.ToSlash(target))
	if r.LinkDir() != r.Top {
		var ok bool
		if target, ok = strings.CutPrefix(target, StateLink+"/"); !ok {
			return "" // a link beside the pointer
		}
	}
	return path.Dir(target)
}

// program names the agent's folders in those of a system.
const program = "muster-agent"

// System is where an installation is if it uses the folders of a system. All are absolute.
//
//	<prefix>/lib/muster-agent/1.0.0/        a version that the system's packages brought
//	<prefix>/lib/muster-agent/default       → <sysconfdir>/muster-agent
//	<prefix>/bin/muster-agent               → <prefix>/lib/muster-agent/default/muster-agent
//	<sysconfdir>/muster-agent/muster-agent  → state/data/<home>/muster-agent, the pointer
//	<sysconfdir>/muster-agent/state         → <localstatedir>/lib/muster-agent
//	<sysconfdir>/muster-agent/agent.yml     the settings
//	<localstatedir>/lib/muster-agent/       all that the agent writes
//
// Nothing is written below the prefix after the installation.
type System struct {
	Prefix, SysConfDir, LocalStateDir string
}

// Roots returns the folders of the installation.
func (s System) Roots() Roots {
	return Roots{Top: filepath.Join(s.LocalStateDir, "lib", program), Links: filepath.Join(s.SysConfDir, program)}
}

// Versions returns the folder below the prefix that has a folder for each version.
func (s System) Versions() string { return filepath.Join(s.Prefix, "lib", program) }

// Version returns the folder of a version below the prefix.
func (s System) Version(version string) string { return filepath.Join(s.Versions(), version) }

// Default returns the link beside the versions, which leads to the folder of the pointer.
func (s System) Default() string { return filepath.Join(s.Versions(), defaultLink) }

const defaultLink = "default"

// Command returns the link under which users run the current version, and its target.
func (s System) Command() (link, target string) {
	return filepath.Join(s.Prefix, "bin", AgentLink), filepath.Join(s.Default(), AgentLink)
}

// LocateDefault returns [System.Default] of the system in which a program is at
// <prefix>/lib/muster-agent/<version>/<program>. It is "" for a program elsewhere.
func LocateDefault(file string) string {
	versions := filepath.Dir(filepath.Dir(file))
	if filepath.Base(versions) != program || filepath.Base(filepath.Dir(versions)) != "lib" || strings.HasPrefix(filepath.Base(filepath.Dir(file)), ".") {
		return ""
	}
	return filepath.Join(versions, defaultLink)
}
