package artifact_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

// component returns the package of a component.
func (w *world) component(name, version string) parcel {
	w.t.Helper()
	files := map[string]string{"bin/" + name: "#!/bin/sh\n", "conf/" + name + ".conf": version}
	c := fakepkg.Component(name)
	c.ServerFiles = []string{"/etc/" + name + "/"}
	c.Migrations = []manifest.Migration{{Version: "1.1.0", Up: manifest.Hook{Exec: []string{"/bin/true"}}}}
	return w.read(fakepkg.BuildComponent(w.t, w.t.TempDir(), c, version, files))
}

func TestComponentPackageIsPushedServedAndWithdrawn(t *testing.T) {
	first, second, d := servers(t)
	web, agent := first.component("web", "1.1.0"), first.build("1.1.0", "agent")
	p := first.pushed(web)
	if p.Component != "web" || p.Runtime != "process" || p.Version != "1.1.0" || p.File != web.name || !slices.Equal(p.ServerFiles, []string{"/etc/web/"}) || !slices.Equal(p.Migrations, []fleet.PackageMigration{{Version: "1.1.0"}}) {
		t.Errorf("the record is %+v", p)
	}
	if p := first.pushed(agent); p.Component != "" || p.Runtime != "" {
		t.Errorf("the agent's record is %+v", p)
	}
	second.serves(web)
	if err := second.service.Delete(t.Context(), web.name, "ann"); err != nil {
		t.Fatal(err)
	}
	_, err := first.serve(http.MethodGet, web.name, nil)
	first.wantKind(err, fleet.NotFound, web.name)
	if len(d.has()) != 1 {
		t.Errorf("the store has %v", d.has())
	}
	first.serves(agent)
}

func TestPackageOfAnotherComponentUnderANameIsRefused(t *testing.T) {
	w := newWorld(t)
	web, db, agent := w.component("web", "1.1.0"), w.component("db", "1.1.0"), w.build("1.1.0", "agent")
	for _, as := range []parcel{web, db, agent} {
		for _, other := range []parcel{web, db, agent} {
			if as.name == other.name {
				continue
			}
			_, err := w.push(parcel{as.name, other.body})
			w.wantKind(err, fleet.Invalid, "by its manifest the package is "+other.name)
		}
	}
	evil := fakepkg.EvilComponentPackages(t, "1.1.0")
	for _, e := range evil {
		path := fakepkg.Write(t, t.TempDir(), manifest.ComponentArchiveName("web", "1.1.0", "linux", "amd64", "tar.gz"), e.Entries)
		_, err := w.push(w.read(path))
		w.wantKind(err, fleet.Invalid, e.Why)
	}
	w.holds()
}

// Elastic's agents and Muster's are offered no package of a component.
func TestCatalogOfAgentsHasNoComponents(t *testing.T) {
	w := newWorld(t)
	w.pushed(w.build("1.1.0", "agent"))
	web := w.pushed(w.component("web", "9.9.9"))
	all, _, err := w.store.Packages().List(t.Context(), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := fleet.OfComponent(all, "").Versions(); !slices.Equal(got, []string{"1.1.0"}) {
		t.Errorf("agents can be upgraded to %v", got)
	}
	var host fleet.HostMetadata
	host.OS.Type, host.Host.Architecture = web.OS, web.Arch
	if got := fleet.OfComponent(all, "web").For("9.9.9", host); len(got) != 1 || got[0].File != web.File {
		t.Errorf("the component has %+v", got)
	}
	if got := fleet.OfComponent(all, "db"); len(got) != 0 {
		t.Errorf("another component has %+v", got)
	}
	host.OS.Type = "plan9"
	if got := fleet.OfComponent(all, "web").For("9.9.9", host); len(got) != 0 {
		t.Errorf("another system has %+v", got)
	}
}
