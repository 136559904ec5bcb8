package layout

import "testing"

func TestRootsKnowTheirLinks(t *testing.T) {
	for what, test := range map[string]struct {
		roots        Roots
		link, target string
	}{
		"below one folder": {Roots{Top: "/opt/muster"}, "/opt/muster/muster-agent", newHome + "/muster-agent"},
		"in a system": {
			System{Prefix: "/usr", SysConfDir: "/etc", LocalStateDir: "/var"}.Roots(),
			"/etc/muster-agent/muster-agent", "state/" + newHome + "/muster-agent",
		},
	} {
		t.Run(what, func(t *testing.T) {
			if got := test.roots.Link("muster-agent"); got != test.link {
				t.Errorf("the link is %s, want %s", got, test.link)
			}
			got := test.roots.Target(newHome, "muster-agent")
			if got != test.target {
				t.Errorf("its target is %s, want %s", got, test.target)
			}
			if home := test.roots.HomeOf(got); home != newHome {
				t.Errorf("the target is in %s, want %s", home, newHome)
			}
			if home := test.roots.HomeOf(Path(test.roots.Top, newHome+"/muster-agent")); home != newHome {
				t.Errorf("the absolute target is in %s, want %s", home, newHome)
			}
			for _, elsewhere := range []string{"/usr/bin/muster-agent", "muster-agent", "other/" + newHome + "/muster-agent", "../data/muster-agent-1.1.0-3f2a9c/muster-agent"} {
				if home := test.roots.HomeOf(elsewhere); IsHome(home) {
					t.Errorf("%s is said to be in the home %s", elsewhere, home)
				}
			}
		})
	}
}

func TestLocateDefaultFindsTheLinkBesideTheVersions(t *testing.T) {
	s := System{Prefix: "/usr", SysConfDir: "/etc", LocalStateDir: "/var"}
	for file, want := range map[string]string{
		s.Version("1.0.0") + "/muster-agent":                   s.Default(),
		s.Versions() + "/.unpack-1.0.0/muster-agent":           "",
		"/usr/bin/muster-agent":                                "",
		"/opt/muster/" + newHome + "/muster-agent":             "",
		"/var/lib/muster-agent/data/" + newHome + "/muster-x/": "",
	} {
		if got := LocateDefault(file); got != want {
			t.Errorf("LocateDefault(%s) is %q, want %q", file, got, want)
		}
	}
}
