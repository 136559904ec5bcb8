package architecture

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// begins matches the text before an absolute path.
const begins = `(^|[\s"'(=:,` + "`" + `])`

// places are paths and hosts that exist on one machine only. No pattern matches itself.
var places = []place{
	{"the home folder of root", regexp.MustCompile(begins + `/root/\w`), nil},
	{"somebody's home folder", regexp.MustCompile(begins + `/(home|Users)/[A-Za-z]\w*/`), nil},
	{"somebody's home folder", regexp.MustCompile(`[A-Za-z]:\\+Users\\+[A-Za-z]\w*\\`), nil},
	{"a working copy", regexp.MustCompile(begins + `/(work|workspace|builds)/\w`), nil},
	{"a temporary folder; use os.MkdirTemp or t.TempDir", regexp.MustCompile(`["'` + "`" + `]/tmp/\w`), []string{".ts", ".tsx", ".mjs", ".json", ".yaml", ".yml", "magefile.go"}},
	{"an address in somebody's network", regexp.MustCompile(`https?://(10\.\d+|192\.168|172\.(1[6-9]|2\d|3[01]))\.\d+\.\d+`), []string{".mod", ".sum", ".json", ".npmrc", ".mjs"}},
}

func TestNoFileContainsMachinePaths(t *testing.T) {
	tr := openTree(t)
	for _, name := range tr.files {
		content := tr.read(name)
		if isBinary(content) {
			continue
		}
		number := 0
		for line := range strings.Lines(string(content)) {
			number++
			for _, p := range places {
				if p.in != nil && !slices.ContainsFunc(p.in, func(s string) bool { return strings.HasSuffix(name, s) }) {
					continue
				}
				if found := p.pattern.FindString(line); found != "" {
					t.Errorf("%s:%d: %q names %s: it exists on one machine only. Derive it, or use an example name (/opt/muster, /srv/…)", name, number, found, p.what)
				}
			}
		}
	}
}

func TestMachinePathsAreRecognized(t *testing.T) {
	slash := "/"
	for text, finds := range map[string]bool{
		"cd " + slash + "root/x":                 true,
		"see " + slash + "home/ann/muster":       true,
		slash + "Users/ann/x":                    true,
		`C:\` + `Users\ann\x`:                    true,
		slash + "work/main":                      true,
		"${dir}/root/x":                          false,
		"an agent's home/ folder":                false,
		"/opt/muster/data/home/run":              false,
		"data/" + "home/ann/x":                   false,
		`"` + "/work" + `"`:                      false,
		"server/cli/../work/x and ./root/binary": false,
	} {
		found := slices.ContainsFunc(places, func(p place) bool {
			return p.in == nil && p.pattern.MatchString(text)
		})
		if found != finds {
			t.Errorf("%q: found is %v, want %v", text, found, finds)
		}
	}
}

type place struct {
	what    string
	pattern *regexp.Regexp
	// in are the suffixes of the files that are searched; nil means all.
	in []string
}

// registries are the public package registries.
var registries = []string{"https://registry.npmjs.org/"}

// replacements are the lines of go.mod files that may replace a module.
var replacements = []string{
	// Modules of tests, with the code that they are committed with.
	"replace github.com/muster-fleet/muster => ../..",
	"replace github.com/muster-fleet/muster => ../../..",
	// OpenTofu's own replacement, which does not apply to a module that builds it. It is a
	// published module, so that go.sum has its hash.
	"replace github.com/hashicorp/hcl/v2 => github.com/opentofu/hcl/v2 v2.20.2-0.20251021132045-587d123c2828",
}

var resolved = regexp.MustCompile(`"resolved":\s*"([^"]*)"`)

// Every clone must get the same dependencies from public registries.
func TestDependenciesComeFromPublicSources(t *testing.T) {
	tr := openTree(t)
	for _, name := range tr.files {
		switch base := path.Base(name); {
		case base == "package-lock.json":
			text := string(tr.read(name))
			for _, m := range resolved.FindAllStringSubmatch(text, -1) {
				if !slices.ContainsFunc(registries, func(r string) bool { return strings.HasPrefix(m[1], r) }) {
					t.Errorf("%s: a package comes from %s: install with npm's public registry, or with omit-lockfile-registry-resolved", name, m[1])
				}
			}
			if !strings.Contains(text, `"integrity": "sha512-`) {
				t.Errorf("%s: no hashes: what npm fetches would not be checked", name)
			}
		case base == ".npmrc":
			for line := range strings.Lines(string(tr.read(name))) {
				if key, _, _ := strings.Cut(line, "="); strings.Contains(key, "registry") && !strings.HasPrefix(key, "omit-lockfile") || strings.HasPrefix(line, "//") {
					t.Errorf("%s: %q: a registry is the user's choice, in their own .npmrc", name, strings.TrimSpace(line))
				}
			}
		case strings.HasSuffix(base, ".mod"):
			for line := range strings.Lines(string(tr.read(name))) {
				if slices.Contains(replacements, strings.TrimSpace(line)) {
					continue
				}
				if strings.HasPrefix(strings.TrimSpace(line), "replace ") || strings.HasPrefix(line, "replace(") {
					t.Errorf("%s: %q: a replaced module is not verified by the checksum database", name, strings.TrimSpace(line))
				}
			}
		}
	}
}
