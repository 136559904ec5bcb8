package manifest

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const legacyHash = "3f2a9c0000000000000000000000000000000000"

func legacy() Legacy {
	return Legacy{
		Home: "data/muster-agent-3f2a9c", Version: []byte("1.1.0-SNAPSHOT\n"),
		CommitFile: ".muster-agent.active.commit", Commit: []byte(legacyHash + "\n"),
	}
}

func TestLegacyManifestHasVersionHashAndHome(t *testing.T) {
	m, err := legacy().Manifest()
	if err != nil {
		t.Fatal(err)
	}
	want := Identity{Version: "1.1.0", Snapshot: true, Hash: legacyHash}
	if p := m.Package; p.Identity() != want || p.Home() != "data/muster-agent-3f2a9c" || p.OS != "" || p.Arch != "" {
		t.Errorf("got %+v", p)
	}
	// The agent reads the manifest that the unpacker writes into the home.
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(strings.NewReader(string(text)))
	if err != nil || again.Package.Identity() != want || again.Package.Home() != m.Package.Home() {
		t.Errorf("read again it is %+v, %v", again, err)
	}
}

func TestLegacyManifestErrorNamesTheFile(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*Legacy)
		want   []string
	}{
		"zeros for a version":    {func(l *Legacy) { l.Version = make([]byte, 6) }, []string{"package.version", "zero bytes"}},
		"zeros behind a version": {func(l *Legacy) { l.Version = []byte("1.1.0\x00\x00") }, []string{"package.version", "three numbers"}},
		"no version":             {func(l *Legacy) { l.Version = nil }, []string{"package.version", "is empty"}},
		"two lines":              {func(l *Legacy) { l.Version = []byte("1.1.0\n1.2.0\n") }, []string{"package.version", "three numbers"}},
		"zeros for a commit":     {func(l *Legacy) { l.Commit = make([]byte, 41) }, []string{".muster-agent.active.commit", "zero bytes"}},
		"a short commit":         {func(l *Legacy) { l.Commit = []byte("3f2a9") }, []string{".muster-agent.active.commit", "6 to 128"}},
		"upper case":             {func(l *Legacy) { l.Commit = []byte("3F2A9C") }, []string{".muster-agent.active.commit", "lower-case"}},
		"endless":                {func(l *Legacy) { l.Commit = []byte(strings.Repeat("a", MaxLegacyFile+1)) }, []string{".muster-agent.active.commit", "more than 256 bytes"}},
		"another hash's home":    {func(l *Legacy) { l.Home = "data/muster-agent-abcdef" }, []string{"data/muster-agent-abcdef", "want data/muster-agent-3f2a9c"}},
		"a home of its own name": {func(l *Legacy) { l.Home = "data/agent" }, []string{"data/agent", "want data/muster-agent-3f2a9c"}},
	} {
		l := legacy()
		c.change(&l)
		_, err := l.Manifest()
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: got %v, want %q", what, err, want)
			}
		}
	}
}

// Whatever the two files contain, the manifest is valid or refused, and its home stays
// below data/.
func TestLegacyManifestStaysInItsHome(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := legacy()
		l.Version = rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(rt, "version")
		if rapid.Bool().Draw(rt, "real version") {
			l.Version = []byte(rapid.StringMatching(`[0-9]{1,2}\.[0-9]{1,2}\.[0-9](-[a-zA-Z.0-9/]{1,9})?`).Draw(rt, "text"))
		}
		l.Commit = []byte(rapid.StringMatching(`(3f2a9c)?[0-9a-f/.]{0,40}`).Draw(rt, "commit"))
		l.Home = rapid.SampledFrom([]string{"data/muster-agent-3f2a9c", "data/elastic-agent-3f2a9c", "data/..", "../data/x", "data/downloads"}).Draw(rt, "home")
		m, err := l.Manifest()
		if err != nil {
			return
		}
		if err := m.Validate(); err != nil {
			rt.Fatal(err)
		}
		if m.Package.Home() != l.Home || !strings.HasSuffix(l.Home, "-3f2a9c") {
			rt.Fatalf("its home is %s", m.Package.Home())
		}
	})
}

func TestLegacyVersionHome(t *testing.T) {
	for name, want := range map[string]string{
		"data/muster-agent-3f2a9c/package.version": "data/muster-agent-3f2a9c",
		"data/x/package.version":                   "data/x",
		"package.version":                          "",
		"data/package.version":                     "",
		"data/x/y/package.version":                 "",
		"other/x/package.version":                  "",
		"data/x/package.version.old":               "",
	} {
		home, ok := LegacyVersionHome(name)
		if ok != (want != "") || ok && home != want {
			t.Errorf("%s: %q, %v, want %q", name, home, ok, want)
		}
	}
}

func TestProgramName(t *testing.T) {
	for goos, want := range map[string]string{"linux": "muster-agent", "darwin": "muster-agent", "windows": "muster-agent.exe"} {
		if got := ProgramName(goos, "muster-agent"); got != want {
			t.Errorf("on %s it is %s, want %s", goos, got, want)
		}
	}
}
