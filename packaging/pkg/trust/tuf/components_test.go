package tuf_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
)

// components is a repository with an agent and two components, one of which has limits.
func components(t *testing.T) (repo *tuftest.Repo, agent, web, ui string) {
	t.Helper()
	repo = tuftest.New(t)
	agent = repo.Release("1.1.0", "agent")
	repo.ReleaseComponent("web", "2.3.0", "old")
	web = repo.ReleaseComponent("web", "2.4.0", "web")
	ui = repo.ReleaseComponent("web-ui", "1.0.0", "ui")
	repo.PublishTargets(func(e *tuf.Edit) error {
		return errors.Join(e.SetFloor("", "1.1.0"), e.SetFloor("web", "2.0.0"), e.AllowDowngrade("web", "2.3.0", repo.Now.Add(time.Hour)))
	})
	return repo, agent, web, ui
}

func TestEachComponentHasItsOwnTargetsAndLimits(t *testing.T) {
	repo, agent, web, ui := components(t)
	h := newHost(t, repo)
	old := strings.Replace(web, "2.4.0", "2.3.0", 1)
	for _, c := range []struct {
		name, floor string
		size        int64
		downgrade   bool
	}{{agent, "1.1.0", 5, false}, {web, "2.0.0", 3, false}, {old, "2.0.0", 3, true}, {ui, "", 2, false}} {
		h.mustInstall(c.name)
		if e, err := h.expect(c.name); err != nil || e.Floor != c.floor || e.Size != c.size || e.Unpacked != 3*c.size || e.Downgrade != c.downgrade {
			t.Errorf("%s: %+v, %v; want %+v", c.name, e, err, c)
		}
	}
	served := repo.Served()
	for range 2 { // also if the server withholds all files
		for component, want := range map[string]string{"": "1.1.0", "web": "2.0.0", "web-ui": "", "unknown": ""} {
			if got := h.client().Floor(t.Context(), component); got != want {
				t.Errorf("the floor of %q is %q, want %q", component, got, want)
			}
		}
		repo.Restore(nil)
	}
	repo.Restore(served)
	for name, versions := range map[string]string{
		"muster-component-web-9.9.9-linux-amd64.tar.gz":    "2.4.0 2.3.0",
		"muster-component-web-ui-9.9.9-linux-amd64.tar.gz": "1.0.0",
		"muster-component-db-9.9.9-linux-amd64.tar.gz":     "",
		"muster-agent-9.9.9-linux-amd64.tar.gz":            "1.1.0",
	} {
		_, err := h.expect(name)
		var unknown *tuf.UnknownTargetError
		if !errors.As(err, &unknown) || strings.Join(unknown.Versions, " ") != versions {
			t.Errorf("%s: got %v, want versions %s", name, err, versions)
		}
	}
	c, err := tuf.ContentsOf(repo.State.Targets)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, target := range c.Targets {
		names = append(names, target.FileName())
	}
	if want := []string{agent, web, old, ui}; !slices.Equal(names, want) {
		t.Errorf("the targets are %v, want %v", names, want)
	}
}

// An agent that knows no components refuses a file that has a target whose name it does not
// understand, and would then install nothing any more.
func TestTargetsThatOlderAgentsReadAreThoseOfAgents(t *testing.T) {
	repo, agent, _, _ := components(t)
	var file struct {
		Signed struct {
			Targets map[string]any `json:"targets"`
			Floor   string         `json:"x-muster-floor"`
		} `json:"signed"`
	}
	if err := json.Unmarshal(repo.State.Targets, &file); err != nil {
		t.Fatal(err)
	}
	if names := slices.Collect(maps.Keys(file.Signed.Targets)); len(names) != 1 || names[0] != agent || file.Signed.Floor != "1.1.0" {
		t.Errorf("older agents read the targets %v and the floor %q", names, file.Signed.Floor)
	}
}

func TestTargetsOfComponentsAreEdited(t *testing.T) {
	repo := tuftest.New(t)
	e, err := tuf.EditTargets(nil, repo.Now.Add(tuf.TargetsLife))
	if err != nil {
		t.Fatal(err)
	}
	until := repo.Now.Add(time.Hour)
	web, _ := tuftest.ComponentArchive("web", "2.4.0", "x")
	other, _ := tuftest.ComponentArchive("web", "2.4.0", "y")
	agent, _ := tuftest.Archive("2.5.0", "agent")
	if err := errors.Join(e.AddTarget(agent), e.AddTarget(web), e.AddTarget(web)); err != nil {
		t.Fatal(err)
	}
	bad := web
	bad.Component = "Web"
	for what, c := range map[string]struct {
		err  error
		says string
	}{
		"other bytes":               {e.AddTarget(other), "other bytes"},
		"an invalid name":           {e.AddTarget(bad), "component: "},
		"an invalid floor":          {e.SetFloor("web", "2"), "floor: "},
		"another's version":         {e.AllowDowngrade("web", "2.5.0", until), "add its archive first"},
		"a version of no component": {e.AllowDowngrade("", "2.4.0", until), "add its archive first"},
		"below the floor":           {errors.Join(e.SetFloor("web", "2.4.1"), e.AllowDowngrade("web", "2.4.0", until)), "below the floor"},
		"a file that is unknown":    {e.RemoveTarget("muster-component-db-2.4.0-linux-amd64.tar.gz"), "is not among"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", what, c.err, c.says)
		}
	}
	if err := errors.Join(e.SetFloor("web", "2.4.0"), e.AllowDowngrade("web", "2.4.0", until), e.SetFloor("db", "1.0.0")); err != nil {
		t.Fatal(err)
	}
	data, err := e.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	c, err := tuf.ContentsOf(data)
	if err != nil || !slices.Equal(c.Targets, []tuf.Target{agent, web}) || c.Floor != "" || c.LimitsOf("web").Floor != "2.4.0" || !c.LimitsOf("web").AllowsDowngrade("2.4.0", repo.Now) || c.LimitsOf("db").Floor != "1.0.0" {
		t.Errorf("got %+v, %v", c, err)
	}
	// A signed file is edited as it was read.
	if e, err = tuf.EditTargets(repo.SignBy(data, repo.State.Root(), repo.TargetsKeys[0]), repo.Now.Add(tuf.TargetsLife)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.AddTarget(web), e.RemoveTarget(web.FileName()), e.SetFloor("web", ""), e.AllowDowngrade("web", "2.4.0", time.Time{}), e.SetFloor("db", "")); err != nil {
		t.Fatal(err)
	}
	if data, err = e.Bytes(); err != nil || bytes.Contains(data, []byte("component")) {
		t.Errorf("without components: %s, %v", data, err)
	}
}

// Whoever signs, the name of a target and what is said about it must agree, for agents and for
// the server before.
func TestEntriesOfComponentsMustAgreeWithTheirNames(t *testing.T) {
	repo, agent, web, _ := components(t)
	th, h := thief{t, repo}, newHost(t, repo)
	h.mustInstall(web)
	section := func(s map[string]any, name string) map[string]any {
		section, _ := s["x-muster-components"].(map[string]any)[name].(map[string]any)
		return section
	}
	targets := func(s map[string]any, name string) map[string]any {
		targets, _ := section(s, name)["targets"].(map[string]any)
		return targets
	}
	for what, c := range map[string]struct {
		change func(s map[string]any)
		says   string
	}{
		"another component's archive": {func(s map[string]any) { targets(s, "web-ui")[web] = targets(s, "web")[web] }, "describes muster-component-web-ui-2.4.0"},
		"an agent's archive":          {func(s map[string]any) { targets(s, "web")[agent] = s["targets"].(map[string]any)[agent] }, "describes muster-component-web-1.1.0"},
		"a component's among agents'": {func(s map[string]any) { s["targets"].(map[string]any)[web] = targets(s, "web")[web] }, "describes muster-agent-2.4.0"},
		"another version": {func(s map[string]any) {
			targets(s, "web")[web].(map[string]any)["custom"].(map[string]any)["version"] = "2.5.0"
		}, "describes muster-component-web-2.5.0"},
		"no digest":                  {func(s map[string]any) { delete(targets(s, "web")[web].(map[string]any), "hashes") }, "hashes must not be empty"},
		"half a byte":                {func(s map[string]any) { targets(s, "web")[web].(map[string]any)["length"] = "1" }, web},
		"an invalid name":            {func(s map[string]any) { s["x-muster-components"].(map[string]any)["../web"] = section(s, "web") }, "x-muster-components.../web"},
		"no components":              {func(s map[string]any) { s["x-muster-components"] = "none" }, "x-muster-components: is none, want an object"},
		"no component":               {func(s map[string]any) { s["x-muster-components"].(map[string]any)["web"] = []any{} }, "x-muster-components.web: is"},
		"a floor that is no version": {func(s map[string]any) { section(s, "web")["floor"] = "2" }, "x-muster-components.web.floor"},
		"a downgrade without an end": {func(s map[string]any) { section(s, "web")["allow-downgrade"] = map[string]any{"2.3.0": true} }, "x-muster-components.web.allow-downgrade.2.3.0"},
		"targets that are none":      {func(s map[string]any) { section(s, "web")["targets"] = 1 }, "x-muster-components.web.targets: is 1"},
	} {
		bad := th.forge(repo.State.Targets, func(s map[string]any) {
			s["version"] = versionOf(t, repo.State.Targets) + 1
			c.change(s)
		}, repo.TargetsKeys...)
		if _, err := tuf.Accept(repo.State, repo.Now, bad); !errors.Is(err, tuf.ErrMalformed) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: the server says %v, want %q", what, err, c.says)
		}
		served := repo.Served()
		snapshot, timestamp := th.beyond()
		th.online(bad, versionOf(t, bad), snapshot, timestamp)
		if _, err := h.clone().expect(web); !errors.Is(err, tuf.ErrMalformed) {
			t.Errorf("%s: an agent says %v", what, err)
		}
		repo.Restore(served)
	}
}
