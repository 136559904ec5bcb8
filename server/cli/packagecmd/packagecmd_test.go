package packagecmd

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/runtimes"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

// release is the working folder of a release engineer.
type release struct {
	t   *testing.T
	dir string
}

func newRelease(t *testing.T) release {
	t.Helper()
	r := release{t, t.TempDir()}
	t.Chdir(r.dir)
	t.Setenv(passwordEnv, "")
	t.Setenv("SOURCE_DATE_EPOCH", "")
	r.write("bin/muster-agent", "agent", 0o755)
	r.write("bin/muster-watcher", "watcher", 0o755)
	r.write("bin/notes.txt", "notes", 0o644)
	return r
}

func (r release) write(name, body string, mode os.FileMode) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(body), mode); err != nil {
		r.t.Fatal(err)
	}
}

// try runs `muster package` with arguments.
func (r release) try(args ...string) (stdout string, err error) {
	r.t.Helper()
	stdout, _, err = r.start(args...)
	return stdout, err
}

// stderr returns the notes of a command that works.
func (r release) stderr(args ...string) string {
	r.t.Helper()
	_, notes, err := r.start(args...)
	if err != nil {
		r.t.Fatalf("package %s: %v", strings.Join(args, " "), err)
	}
	return notes
}

func (r release) start(args ...string) (stdout, stderr string, err error) {
	r.t.Helper()
	var out, errOut bytes.Buffer
	cmd := New()
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(""))
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	cmd.SilenceErrors = true
	err = cmd.ExecuteContext(r.t.Context())
	if strings.Contains(errOut.String(), "\x1b") || strings.Contains(errOut.String(), "\r") {
		r.t.Errorf("package %v writes a progress line although there is no terminal: %q", args, errOut.String())
	}
	return out.String(), errOut.String(), err
}

func (r release) run(args ...string) string {
	r.t.Helper()
	out, err := r.try(args...)
	if err != nil {
		r.t.Fatalf("package %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// refuses expects an error that contains all words.
func (r release) refuses(words []string, args ...string) {
	r.t.Helper()
	_, err := r.try(args...)
	if err == nil {
		r.t.Errorf("package %s works, want an error", strings.Join(args, " "))
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			r.t.Errorf("package %s says\n%v\nwithout %q", strings.Join(args, " "), err, word)
		}
	}
}

func (r release) files() []string {
	r.t.Helper()
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

var build110 = []string{
	"build", "--version", "1.1.0", "--os", "linux", "--arch", "amd64",
	"--file", "muster-agent=bin/muster-agent", "--file", "muster-watcher=bin/muster-watcher", "--file", "notes.txt=bin/notes.txt",
}

const archive110 = "muster-agent-1.1.0-linux-amd64.tar.gz"

func decode(t *testing.T, text string, v any) {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(text))
	if err := dec.Decode(v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

func TestInspectShowsContentsOfPackage(t *testing.T) {
	r := newRelease(t)
	r.run(append(build110, "--snapshot", "--hash", "ABCDEF0123456789")...)
	const archive = "muster-agent-1.1.0-SNAPSHOT-linux-amd64.tar.gz"
	human := r.run("inspect", archive)
	for _, word := range []string{"1.1.0-SNAPSHOT", "abcdef0123456789", "linux/amd64", "data/muster-agent-1.1.0-SNAPSHOT-abcdef", "0755", "muster-agent-abcdef/muster-agent"} {
		if !strings.Contains(human, word) {
			t.Errorf("inspect shows\n%s\nwithout %q", human, word)
		}
	}
	var report inspectReport
	decode(t, r.run("inspect", "-o", "json", archive), &report)
	if report.Version != "1.1.0" || !report.Snapshot || report.Hash != "abcdef0123456789" || len(report.SHA256) != 64 {
		t.Errorf("inspect -o json gives %+v", report)
	}
	modes := map[string]string{}
	for _, f := range report.Files {
		modes[filepath.Base(f.Name)] = f.Mode
	}
	if modes["muster-agent"] != "0755" || modes["notes.txt"] != "0644" {
		t.Errorf("modes are %v", modes)
	}
}

func TestComponentIsBuiltAndInspected(t *testing.T) {
	r := newRelease(t)
	r.write("component.yaml", r.run("example"), 0o644)
	r.write("checks.yml", `- {name: answers, http: "http://127.0.0.1:8080/health"}`, 0o644)
	args := []string{"build", "--version", "2.4.0", "--os", "linux", "--arch", "amd64", "--component", "component.yaml", "--checks", "checks.yml", "--file", "web.service=bin/notes.txt"}
	r.refuses([]string{`"conf/web.conf" is not in the package, for /etc/web/web.conf`, "--file conf/web.conf=PATH"}, args...)
	const archive = "muster-component-web-2.4.0-linux-amd64.tar.gz"
	if out := r.run(append(args, "--file", "conf/web.conf=bin/notes.txt", "--file", "bin/web=bin/muster-agent")...); !strings.Contains(out, archive) || !strings.Contains(out, "component web, version 2.4.0") {
		t.Errorf("build says\n%s", out)
	}
	human := r.run("inspect", archive)
	for _, word := range []string{
		"component", "runtime", "systemd", `"web.service"`, "/var/lib/web", "/etc/web/web.conf from conf/web.conf, mode 0640, owner root:web", "server may write", "/etc/web/conf.d/",
		"check", "answers", "data/web-2.4.0-", "/bin/web", `["bin/web" "drain"], at most 10m0s`, "state", `["bin/web" "migrate" "2.3"], at most 30m0s; back ["bin/web" "migrate" "2.2"], at most 5m0s`,
	} {
		if !strings.Contains(human, word) {
			t.Errorf("inspect shows\n%s\nwithout %q", human, word)
		}
	}
	var report inspectReport
	decode(t, r.run("inspect", "-o", "json", archive), &report)
	if c := report.Component; c == nil || c.Name != "web" || c.Settings["unit"] != "web.service" || len(c.ConfigFiles) != 1 || len(report.Checks) != 1 {
		t.Errorf("inspect -o json gives %+v", report)
	}
}

func TestContainerIsBuiltWithoutFiles(t *testing.T) {
	r := newRelease(t)
	r.write("component.yaml", "name: cache\nruntime: docker\nsettings: {image: \"example.com/cache@sha256:"+strings.Repeat("a", 64)+"\"}\n", 0o644)
	r.run("build", "--version", "1.0.0", "--os", "linux", "--arch", "arm64", "--component", "component.yaml")
	var report inspectReport
	decode(t, r.run("inspect", "-o", "json", "muster-component-cache-1.0.0-linux-arm64.tar.gz"), &report)
	if len(report.Files) != 1 || report.Component.Runtime != "docker" {
		t.Errorf("inspect -o json gives %+v", report)
	}
}

func TestDescriptionOfAComponentIsRefused(t *testing.T) {
	r := newRelease(t)
	const good = "name: web\nruntime: process\n"
	for what, c := range map[string]struct{ text, says string }{
		"empty":               {"", "is empty"},
		"a misspelt key":      {good + "data_dir: /var/lib/web\n", "line 3: there is no key data_dir, want one of name, runtime, settings, data-dir, config-files, server-files, reload, hooks, state-paths, migrations"},
		"two descriptions":    {good + "---\n" + good, "more than one document"},
		"a relative path":     {good + "data-dir: lib\n", `component.yaml: data-dir: is "lib", want an absolute path`},
		"a misspelt file key": {good + "config-files: [{path: /etc/web.conf, form: web.conf}]\n", "there is no key form, want one of path, from, mode, owner, group"},
		"no list":             {good + "config-files: web.conf\n", "line 3: `web.conf` is not a value of this key"},
		"no YAML":             {"name: [\n", "not YAML, line 1"},
		"the whole manifest":  {"package: {component: {name: web}}\n", "there is no key package, want one of name, "},
	} {
		r.write("component.yaml", c.text, 0o644)
		r.refuses([]string{"--component: component.yaml: ", c.says, exampleCommand}, "build", "--version", "1.0.0", "--component", "component.yaml")
		if t.Failed() {
			t.Fatal(what)
		}
	}
	// The file of a mistake is not to be overwritten by who copies the hint.
	if _, err := r.try("build", "--version", "1.0.0", "--component", "component.yaml"); err == nil || strings.Contains(err.Error(), ">") {
		t.Errorf("the hint for a file with a mistake is %v", err)
	}
	r.refuses([]string{"no such file", exampleCommand + " > none.yaml"}, "build", "--version", "1.0.0", "--component", "none.yaml")
	if slices.ContainsFunc(r.files(), func(name string) bool { return strings.HasSuffix(name, ".gz") }) {
		t.Errorf("a refused description left %v", r.files())
	}
}

func TestSettingsThatNoHostCouldUseAreRefused(t *testing.T) {
	r := newRelease(t)
	for what, c := range map[string]struct{ text, says string }{
		"a misspelt setting":      {"runtime: process\nsettings: {programm: bin/web}\n", "settings.programm: is no setting, want one of program, args, env, "},
		"text instead of a list":  {"runtime: process\nsettings: {program: bin/web, args: --config}\n", `settings.args: is "--config", want a list`},
		"a program that is not":   {"runtime: process\nsettings: {program: bin/webb}\n", `settings.program: "bin/webb" is not in the package: build it with --file bin/webb=PATH`},
		"no program":              {"runtime: process\nsettings: {program: notes}\n", `settings.program: "notes" is not executable`},
		"a unit that is not":      {"runtime: systemd\nsettings: {unit: web.service, unit_file: web.service}\n", `settings.unit_file: "web.service" is not in the package`},
		"an image without digest": {"runtime: docker\nsettings: {image: \"nginx:1.27\"}\n", "want <repository>@sha256:<digest>: it has no digest"},
	} {
		r.write("component.yaml", "name: web\n"+c.text, 0o644)
		r.refuses([]string{c.says}, "build", "--version", "1.0.0", "--component", "component.yaml", "--file", "bin/web=bin/muster-agent", "--file", "notes=bin/notes.txt")
		if t.Failed() {
			t.Fatal(what)
		}
	}
	if slices.ContainsFunc(r.files(), func(name string) bool { return strings.HasSuffix(name, ".gz") }) {
		t.Errorf("refused settings left %v", r.files())
	}
}

// Agents may have more runtimes, so an unknown one is no mistake, but it may be one that is
// misspelt.
func TestUnknownRuntimeIsBuiltWithANote(t *testing.T) {
	r := newRelease(t)
	r.write("component.yaml", "name: web\nruntime: podmn\nsettings: {anything: 1}\n", 0o644)
	note := "does not know the runtime \"podmn\", so hosts are the first to check its settings; it knows systemd, process, docker"
	if out := r.stderr("build", "--version", "1.0.0", "--os", "linux", "--arch", "amd64", "--component", "component.yaml"); !strings.Contains(out, note) {
		t.Errorf("build notes %q, want %q", out, note)
	}
	if out := r.run("inspect", "muster-component-web-1.0.0-linux-amd64.tar.gz"); !strings.Contains(out, note) || !strings.Contains(out, " in 1 file\n") {
		t.Errorf("inspect shows\n%s\nwant %q", out, note)
	}
	r.write("component.yaml", "name: web\nruntime: docker\nsettings: {image: \"example.com/cache@sha256:"+strings.Repeat("a", 64)+"\"}\n", 0o644)
	if out := r.stderr("build", "--version", "1.1.0", "--component", "component.yaml"); out != "" {
		t.Errorf("build notes %q of a known runtime", out)
	}
}

// The settings in the example are those of the runtimes.
func TestSettingsOfTheExampleAreAccepted(t *testing.T) {
	for _, runtime := range runtimes.Names() {
		_, text, ok := strings.Cut(exampleComponent, "runtime: "+runtime)
		if !ok {
			t.Fatalf("the example lacks the runtime %s", runtime)
		}
		_, text, _ = strings.Cut(text, "settings:\n")
		text, _, _ = strings.Cut(text, "\n\n")
		c := manifest.Component{Name: "web", Runtime: runtime}
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "#  ", "  ")), &c.Settings); err != nil || len(c.Settings) < 2 {
			t.Fatalf("the settings of %s are %v, %v", runtime, c.Settings, err)
		}
		if err := runtimes.Check(&c, map[string]bool{"bin/web": true, "web.service": false}); err != nil {
			t.Errorf("%s: %v", runtime, err)
		}
	}
}

func TestExampleHasEveryKeyOfAComponent(t *testing.T) {
	for _, typ := range []reflect.Type{
		reflect.TypeFor[manifest.Component](), reflect.TypeFor[manifest.ConfigFile](),
		reflect.TypeFor[manifest.Hooks](), reflect.TypeFor[manifest.Hook](), reflect.TypeFor[manifest.Migration](),
	} {
		for _, key := range yamlKeys(typ) {
			if !regexp.MustCompile(`(?m)(^|{)[ -]*` + key + `:`).MatchString(exampleComponent) {
				t.Errorf("%s of %s is not in the example", key, typ.Name())
			}
		}
	}
}

// writeLegacy writes download.tar.gz, a legacy package whose agent is for arm64.
func writeLegacy(t *testing.T, dir string, p manifest.Package) {
	t.Helper()
	entries := fakepkg.SoundLegacy(p)
	for i := range entries {
		if strings.HasSuffix(entries[i].Name, "/muster-agent") {
			entries[i].Body = fakepkg.Program("linux", "arm64")
		}
	}
	fakepkg.Write(t, dir, "download.tar.gz", entries)
}

func TestALegacyPackageIsInspected(t *testing.T) {
	r := newRelease(t)
	p := fakepkg.DescribeLegacy("1.1.0-SNAPSHOT")
	writeLegacy(t, r.dir, p)
	human := r.run("inspect", "download.tar.gz")
	for _, word := range []string{"1.1.0-SNAPSHOT", p.Hash, "linux/arm64", "legacy: no manifest", "data/muster-agent-3f2a9c", "package.version"} {
		if !strings.Contains(human, word) {
			t.Errorf("inspect shows\n%s\nwithout %q", human, word)
		}
	}
	var report inspectReport
	decode(t, r.run("inspect", "-o", "json", "download.tar.gz"), &report)
	if !report.Legacy || report.OS != "linux" || report.Arch != "arm64" {
		t.Errorf("inspect -o json gives %+v", report)
	}
}

func TestBuildIsReproducible(t *testing.T) {
	r := newRelease(t)
	var archives [2]string
	for i := range archives {
		r.run(append(build110, "--out", "out/")...)
		archives[i] = read(t, filepath.Join("out", archive110))
	}
	if archives[0] != archives[1] {
		t.Error("two runs differ")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1790000000")
	r.run(append(build110, "--out", "dated.tar.gz")...)
	if read(t, "dated.tar.gz") == archives[0] {
		t.Error("$SOURCE_DATE_EPOCH has no effect")
	}
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	r.refuses([]string{"$SOURCE_DATE_EPOCH", `"yesterday"`}, build110...)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestBuildWritesZipForWindows(t *testing.T) {
	r := newRelease(t)
	r.run("build", "--version", "1.1.0-SNAPSHOT", "--os", "windows", "--arch", "arm64", "--file", "muster-agent.exe=bin/muster-agent")
	var report inspectReport
	decode(t, r.run("inspect", "-o", "json", "muster-agent-1.1.0-SNAPSHOT-windows-arm64.zip"), &report)
	if report.OS != "windows" || report.Arch != "arm64" || !report.Snapshot {
		t.Errorf("got %+v", report)
	}
}

func TestErrorsSayWhatToDoNext(t *testing.T) {
	r := newRelease(t)
	r.run(build110...)
	for _, tc := range []struct {
		args  []string
		words []string
	}{
		{[]string{"build"}, []string{"--version is missing", "Try:"}},
		{[]string{"build", "--version", "1.1"}, []string{"--version", "three numbers"}},
		{[]string{"build", "--version", "1.1.0"}, []string{"--file is missing", "muster-agent="}},
		{[]string{"build", "--version", "1.1.0", "--file", "bin/muster-agent"}, []string{"NAME=PATH", "muster-agent=bin/muster-agent"}},
		{[]string{"build", "--version", "1.1.0", "--file", "muster-agent=absent"}, []string{"muster-agent", "absent"}},
		{[]string{"build", "--version", "1.1.0", "--os", "linux", "--file", "agent=bin/muster-agent"}, []string{"no file is named muster-agent"}},
		{append(slices.Clone(build110), "--format", "rar"), []string{`"rar"`, "tar.gz or zip"}},
		{append(slices.Clone(build110), "--format", "zip"), []string{"--format is zip", "agents on linux install packages in tar.gz only", "--format tar.gz"}},
		{
			[]string{"build", "--version", "1.1.0", "--os", "windows", "--arch", "amd64", "--format", "tar.gz", "--file", "muster-agent.exe=bin/muster-agent"},
			[]string{"agents on windows install packages in zip only"},
		},
		{append(slices.Clone(build110), "--hash", "main"), []string{"package.hash"}},
		{[]string{"inspect"}, []string{"no archive is named"}},
		{[]string{"inspect", "a", "b"}, []string{"2 archives"}},
		{[]string{"inspect", "absent.zip"}, []string{"absent.zip", "muster package build"}},
		{[]string{"inspect", "-o", "yaml", archive110}, []string{"--output", "human or json"}},
	} {
		r.refuses(tc.words, tc.args...)
	}
	if got, want := r.files(), []string{"bin", archive110}; !slices.Equal(got, want) {
		t.Errorf("the failed commands left %v, want %v", got, want)
	}
}

func TestFailedBuildKeepsTheExistingArchive(t *testing.T) {
	r := newRelease(t)
	r.run(build110...)
	before := read(t, archive110)
	if err := os.Remove("bin/notes.txt"); err != nil {
		t.Fatal(err)
	}
	r.refuses([]string{"notes.txt"}, build110...)
	if read(t, archive110) != before {
		t.Error("the archive changed")
	}
	if got, want := r.files(), []string{"bin", archive110}; !slices.Equal(got, want) {
		t.Errorf("the folder holds %v, want %v", got, want)
	}
}

func TestEverySubcommandHasHelp(t *testing.T) {
	for _, cmd := range New().Commands() {
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s has no short help or no example", cmd.Name())
		}
		for line := range strings.SplitSeq(cmd.Example, "\n") {
			if fields := strings.Fields(line); len(fields) > 2 && fields[0] == "muster" && fields[2] != cmd.Name() {
				t.Errorf("the example of %s shows %q", cmd.Name(), line)
			}
		}
	}
}
