package manifest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Bounds of hooks.
const (
	// DefaultHookTimeout is long for a load balancer that lets connections end.
	DefaultHookTimeout = 5 * time.Minute
	// MaxHookTimeout is how long the dump or the migration of a large database takes. The
	// component is stopped meanwhile.
	MaxHookTimeout = time.Hour
	// MaxMigrations bounds the description: a major version seldom has as many minor ones.
	MaxMigrations = 100
	// MaxStatePaths bounds what is copied while the component is stopped.
	MaxStatePaths = 20
)

// HookNotYet is the status with which the hook drain ends if it is to be run again a little
// later. Any other status but 0 is a failure. It is EX_TEMPFAIL of sysexits.h.
const HookNotYet = 75

// Hooks are programs that agents run around a change of the component's version. Those of the
// version before prepare its end, that of the new version ends the change. A hook must tolerate
// that it is run again after it was interrupted.
type Hooks struct {
	// User and Group run the hooks and the migrations; both empty: the agent's own.
	User  string `yaml:"user,omitempty" json:"user,omitempty"`
	Group string `yaml:"group,omitempty" json:"group,omitempty"`
	// Drain has the running component finish what it does and take nothing new.
	Drain *Hook `yaml:"drain,omitempty" json:"drain,omitempty"`
	// Undrain undoes Drain, in whichever version runs then.
	Undrain *Hook `yaml:"undrain,omitempty" json:"undrain,omitempty"`
	// Backup writes the component's state into the folder MUSTER_BACKUP, once it is stopped.
	Backup *Hook `yaml:"backup,omitempty" json:"backup,omitempty"`
}

// Hook is one program.
type Hook struct {
	// Exec is a program and its arguments, run without a shell in the version's folder. A
	// relative path is relative to that.
	Exec []string `yaml:"exec" json:"exec"`
	// Timeout is after which it is killed; 0 means DefaultHookTimeout.
	Timeout time.Duration `yaml:"timeout,omitempty" json:"timeout,omitempty"`
}

// Bound returns the timeout with its default.
func (h Hook) Bound() time.Duration { return cmp.Or(h.Timeout, DefaultHookTimeout) }

// Migration brings the component's state to the form of a version, and back to the form before.
type Migration struct {
	Version string `yaml:"version" json:"version"`
	Up      Hook   `yaml:"up" json:"up"`
	// Down is nil if the version cannot be gone back from.
	Down *Hook `yaml:"down,omitempty" json:"down,omitempty"`
}

// Programs calls visit for each hook and migration, with its field.
func (c *Component) Programs(visit func(field string, h Hook)) {
	if h := c.Hooks; h != nil {
		for _, hook := range []struct {
			name string
			hook *Hook
		}{{"drain", h.Drain}, {"undrain", h.Undrain}, {"backup", h.Backup}} {
			if hook.hook != nil {
				visit("hooks."+hook.name, *hook.hook)
			}
		}
	}
	for i, m := range c.Migrations {
		visit(fmt.Sprintf("migrations[%d].up", i), m.Up)
		if m.Down != nil {
			visit(fmt.Sprintf("migrations[%d].down", i), *m.Down)
		}
	}
}

// Migrate returns the migrations that bring the component's state from one version to another, in
// order: those of the newer of the two, which knows both forms. down means that they go back. It
// returns an error if there is no such way; see [CheckStep]. A component without migrations may
// go from any version to any.
func Migrate(from, to *Component, fromVersion, toVersion string) (steps []Migration, down bool, err error) {
	if len(from.Migrations)+len(to.Migrations) == 0 {
		return nil, false, nil
	}
	if err := CheckStep(fromVersion, toVersion); err != nil {
		return nil, false, err
	}
	// The state of a snapshot has the form of the version it will be.
	fromVersion, _ = SplitSnapshot(fromVersion)
	toVersion, _ = SplitSnapshot(toVersion)
	newer, low, high := to, VersionKey(fromVersion), VersionKey(toVersion)
	if down = low > high; down {
		newer, low, high = from, high, low
	}
	for _, m := range newer.Migrations {
		if key := VersionKey(m.Version); key <= low || key > high {
			continue
		}
		if down && m.Down == nil {
			return nil, true, fmt.Errorf("version %s cannot follow %s: the migration to %s has no down, so its state cannot go back", toVersion, fromVersion, m.Version)
		}
		steps = append(steps, m)
	}
	if down {
		slices.Reverse(steps)
	}
	return steps, down, nil
}

func (h Hook) validate() error {
	switch {
	case len(h.Exec) == 0 || h.Exec[0] == "":
		return errors.New("exec is missing: want a program and its arguments")
	case h.Timeout < 0 || h.Timeout > MaxHookTimeout:
		return fmt.Errorf("timeout is %s, want at most %s", h.Timeout, MaxHookTimeout)
	}
	return validProgram(h.Exec[0])
}

// validateState checks hooks, migrations and state paths.
func (c *Component) validateState(check func(field string, err error)) {
	c.Programs(func(field string, h Hook) { check(field, h.validate()) })
	if h := c.Hooks; h != nil {
		check("hooks.user", ValidAccount(h.User))
		check("hooks.group", ValidAccount(h.Group))
		if (h.User == "") != (h.Group == "") {
			check("hooks", errors.New("name both user and group, or neither"))
		}
		if h.Undrain != nil && h.Drain == nil {
			check("hooks.undrain", errors.New("undoes drain, which is missing"))
		}
	}
	if n := len(c.Migrations); n > MaxMigrations {
		check("migrations", fmt.Errorf("has %d entries, want at most %d", n, MaxMigrations))
	}
	for i, m := range c.Migrations {
		field := fmt.Sprintf("migrations[%d].version", i)
		_, err := ParseVersion(m.Version)
		if _, snapshot := SplitSnapshot(m.Version); err == nil && snapshot {
			err = fmt.Errorf("is %q: leave out -SNAPSHOT, its state has the form of the version", m.Version)
		}
		check(field, err)
		if i > 0 && err == nil && VersionKey(m.Version) <= VersionKey(c.Migrations[i-1].Version) {
			check(field, fmt.Errorf("is %s after %s: list them from the oldest to the newest, each once", m.Version, c.Migrations[i-1].Version))
		}
	}
	if n := len(c.StatePaths); n > MaxStatePaths {
		check("state-paths", fmt.Errorf("has %d entries, want at most %d", n, MaxStatePaths))
	}
	for i, p := range c.StatePaths {
		field := fmt.Sprintf("state-paths[%d]", i)
		check(field, ValidHostPath(p))
		for _, other := range c.StatePaths[:i] {
			if p == other || strings.HasPrefix(p+"/", other+"/") || strings.HasPrefix(other+"/", p+"/") {
				check(field, fmt.Errorf("%s is in %s, or the other way round: name the one that holds both", p, other))
			}
		}
	}
}

// validateMigrations returns an error if a migration leads to a version after the package's.
func (p Package) validateMigrations() error {
	last := len(p.Component.Migrations) - 1
	if last < 0 {
		return nil
	}
	if m := p.Component.Migrations[last]; VersionKey(m.Version) > VersionKey(p.Version) {
		return fmt.Errorf("package.component.migrations[%d].version: is %s, want at most the package's own, %s", last, m.Version, p.Version)
	}
	return nil
}
