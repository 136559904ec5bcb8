package manifest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func up(version string) Migration {
	return Migration{Version: version, Up: Hook{Exec: []string{"up " + version}}, Down: &Hook{Exec: []string{"down " + version}}}
}

func TestMigrate(t *testing.T) {
	oneWay := up("1.3.0")
	oneWay.Down = nil
	old := &Component{Migrations: []Migration{up("1.1.0"), up("1.2.0")}}
	later := &Component{Migrations: []Migration{up("1.1.0"), up("1.2.0"), up("1.2.5"), oneWay, up("1.4.0")}}
	none := &Component{}
	for _, c := range []struct {
		from, to             *Component
		fromVersion, version string
		want, err            string
	}{
		{old, later, "1.2.0", "1.2.0", "", ""},
		{old, later, "1.2.0", "1.4.1", "up 1.2.5, up 1.3.0, up 1.4.0", ""},
		{none, later, "1.0.0", "1.4.0", "up 1.1.0, up 1.2.0, up 1.2.5, up 1.3.0, up 1.4.0", ""},
		{old, later, "1.2.0", "1.3.0-SNAPSHOT", "up 1.2.5, up 1.3.0", ""},
		{later, later, "1.3.0-SNAPSHOT", "1.3.0", "", ""},
		{old, later, "1.2.0", "1.3.0-rc.1", "up 1.2.5", ""},
		{later, old, "1.2.9", "1.2.0", "down 1.2.5", ""},
		{later, old, "1.2.9", "1.1.9", "down 1.2.5, down 1.2.0", ""},
		{later, none, "1.1.0", "1.0.0", "down 1.1.0", ""},
		{later, later, "1.4.0", "1.3.1", "down 1.4.0", ""},
		{later, old, "1.3.0", "1.2.0", "", "version 1.2.0 cannot follow 1.3.0: the migration to 1.3.0 has no down, so its state cannot go back"},
		{later, old, "1.4.0", "1.2.0", "", "by one minor version at a time"},
		{none, later, "0.9.0", "1.4.0", "", "their major versions differ"},
		{none, none, "0.9.0", "3.0.0", "", ""},
	} {
		steps, down, err := Migrate(c.from, c.to, c.fromVersion, c.version)
		var is []string
		for _, s := range steps {
			h := s.Up
			if down {
				h = *s.Down
			}
			is = append(is, strings.Join(h.Exec, " "))
		}
		if got := strings.Join(is, ", "); got != c.want || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) || down != strings.HasPrefix(c.want, "down") && err == nil {
			t.Errorf("%s to %s: %s (down %v), %v; want %s%s", c.fromVersion, c.version, got, down, err, c.want, c.err)
		}
	}
}

// Whatever way is taken to a version, its state has been through the same migrations.
func TestMigrationsOfAWayAreThoseOfItsParts(t *testing.T) {
	var all []Migration
	for minor := range 10 {
		all = append(all, up(fmt.Sprintf("2.%d.0", minor+1)))
	}
	at := func(minor int) (*Component, string) {
		return &Component{Migrations: all[:minor]}, fmt.Sprintf("2.%d.0", minor)
	}
	names := func(from, to int) (out []string) {
		a, fromVersion := at(from)
		b, toVersion := at(to)
		steps, _, err := Migrate(a, b, fromVersion, toVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range steps {
			out = append(out, s.Version)
		}
		return out
	}
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(0, 10).Draw(t, "from")
		middle := rapid.IntRange(from, 10).Draw(t, "middle")
		to := rapid.IntRange(middle, 10).Draw(t, "to")
		if whole, parts := names(from, to), slices.Concat(names(from, middle), names(middle, to)); !slices.Equal(whole, parts) {
			t.Fatalf("at once %v, in two parts %v", whole, parts)
		}
		if from < 10 && !slices.Equal(names(from, from+1), names(from+1, from)) {
			t.Fatal("the way back has other migrations")
		}
	})
}

func TestHooksAreValidated(t *testing.T) {
	hook := &Hook{Exec: []string{"bin/hook"}}
	for _, c := range []struct {
		want   string
		change func(*Component)
	}{
		{"", func(*Component) {}},
		{"hooks.drain: exec is missing: want a program and its arguments", func(c *Component) { c.Hooks.Drain = &Hook{} }},
		{`hooks.backup: exec is "../hook", want an absolute path, or one inside the package's home`, func(c *Component) { c.Hooks.Backup = &Hook{Exec: []string{"../hook"}} }},
		{"hooks.drain: timeout is 2h0m0s, want at most 1h0m0s", func(c *Component) { c.Hooks.Drain = &Hook{Exec: hook.Exec, Timeout: 2 * MaxHookTimeout} }},
		{"hooks: name both user and group, or neither", func(c *Component) { c.Hooks.User = "web" }},
		{`hooks.user: is "w b", want the name or the number of an account`, func(c *Component) { c.Hooks.User, c.Hooks.Group = "w b", "web" }},
		{"hooks.undrain: undoes drain, which is missing", func(c *Component) { c.Hooks.Drain = nil }},
		{`migrations[0].version: version is "1.2", want three numbers`, func(c *Component) { c.Migrations[0].Version = "1.2" }},
		{"migrations[0].version: is \"1.1.0-SNAPSHOT\": leave out -SNAPSHOT", func(c *Component) { c.Migrations[0].Version = "1.1.0-SNAPSHOT" }},
		{"migrations[1].version: is 1.1.0 after 1.1.0: list them from the oldest to the newest, each once", func(c *Component) { c.Migrations[1].Version = "1.1.0" }},
		{"migrations[1].up: exec is missing", func(c *Component) { c.Migrations[1].Up = Hook{} }},
		{"migrations: has 101 entries, want at most 100", func(c *Component) { c.Migrations = make([]Migration, 101) }},
		{`state-paths[0]: is "lib/web", want an absolute path`, func(c *Component) { c.StatePaths[0] = "lib/web" }},
		{"state-paths[1]: /var/lib is in /var/lib/web, or the other way round: name the one that holds both", func(c *Component) { c.StatePaths[1] = "/var/lib" }},
		{"state-paths: has 21 entries, want at most 20", func(c *Component) { c.StatePaths = make([]string, 21) }},
	} {
		component := Component{
			Name: "web", Runtime: "process", Hooks: &Hooks{Drain: hook, Undrain: hook, Backup: hook},
			StatePaths: []string{"/var/lib/web", "/var/lib/web2"}, Migrations: []Migration{up("1.1.0"), up("1.2.0")},
		}
		component.Migrations[0].Up.Exec, component.Migrations[0].Down = hook.Exec, nil
		component.Migrations[1].Up.Exec, component.Migrations[1].Down = hook.Exec, hook
		c.change(&component)
		err := component.Validate()
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("error is %v, want %q", err, c.want)
		}
	}
}
