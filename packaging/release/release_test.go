package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"aead.dev/minisign"

	"github.com/muster-fleet/muster/testing/kit/require"
)

const version = "1.0.0"

// made is a release for this machine's processor, made once for all tests.
var made = sync.OnceValues(func() (string, error) { return makeRelease(madeIn, nil) })

// madeIn gets the release.
var madeIn string

func makeRelease(dir string, key *signingKey) (string, error) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return "", err
	}
	return Build(context.Background(), Options{
		Root: root, Out: dir, Version: version, Architectures: []string{runtime.GOARCH}, Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Key: key,
	})
}

func TestMain(m *testing.M) {
	var err error
	if madeIn, err = os.MkdirTemp("", "muster-release-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(madeIn)
	os.Exit(code)
}

func folder(t *testing.T) string {
	t.Helper()
	require.System(t, "linux")
	dir, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func output(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, stdout.String(), stderr.String())
	}
	return stdout.String()
}

// A second release of the same source has the same bytes, on another day and in another folder.
// It is signed, as the first is not, and minisign and sha256sum accept it.
func TestReleaseIsReproducibleAndSigned(t *testing.T) {
	require.Program(t, "minisign")
	one := folder(t)
	_, key, err := minisign.GenerateKey(strings.NewReader(strings.Repeat("0123456789", 100)))
	if err != nil {
		t.Fatal(err)
	}
	two, err := makeRelease(t.TempDir(), &signingKey{key})
	if err != nil {
		t.Fatal(err)
	}
	names := func(dir string) (out []string) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			out = append(out, e.Name())
		}
		return out
	}
	rpmArch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	a := runtime.GOARCH
	want := []string{
		"SHA256SUMS", "muster-1.0.0-1." + rpmArch + ".rpm", "muster-1.0.0-linux-" + a + ".cdx.json", "muster-1.0.0-linux-" + a + ".tar.gz",
		"muster-agent-1.0.0-1." + rpmArch + ".rpm", "muster-agent-1.0.0-linux-" + a + ".cdx.json", "muster-agent-1.0.0-linux-" + a + ".tar.gz",
		"muster-agent_1.0.0_" + a + ".deb", "muster-chart-1.0.0.tgz", "muster-image-1.0.0-linux-" + a + ".tar", "muster-image-1.0.0-oci.tar", "muster-watcher-1.0.0-linux-" + a + ".cdx.json", "muster_1.0.0_" + a + ".deb",
	}
	if got := names(one); !slices.Equal(got, want) {
		t.Errorf("the release has %q, want %q", got, want)
	}
	for _, name := range names(one) {
		first, err := os.ReadFile(filepath.Join(one, name))
		if err != nil {
			t.Fatal(err)
		}
		second, err := os.ReadFile(filepath.Join(two, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Errorf("%s differs between two releases of the same source", name)
		}
	}
	output(t, "sh", "-c", "cd "+two+" && sha256sum --check --strict SHA256SUMS")
	if out := output(t, "minisign", "-V", "-p", filepath.Join(two, keyFile), "-m", filepath.Join(two, sumsFile)); !strings.Contains(out, "file:SHA256SUMS") {
		t.Errorf("minisign prints %s", out)
	}
}

func TestReleaseIsRefusedWithoutAKeyOrAVersion(t *testing.T) {
	dir := t.TempDir()
	_, private, err := minisign.GenerateKey(strings.NewReader(strings.Repeat("0123456789", 100)))
	if err != nil {
		t.Fatal(err)
	}
	key := &signingKey{private}
	plain, err := key.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("release.key"), plain, 0o600), os.WriteFile(at("release.pub"), key.public(), 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Setenv(versionEnv, "")
	t.Setenv(keyEnv, "")
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "--version is missing: MUSTER_VERSION=1.1.0 go tool mage release"},
		{[]string{"-version=next"}, `--version: version is "next", want three numbers`},
		{[]string{"-version=1.0.0", "-arch=mips"}, `--arch: "mips" is not an architecture that is released`},
		{[]string{"-version=1.0.0"}, "--key is missing: name the private key that signs the release, or set MUSTER_RELEASE_KEY; make one with `minisign -G -s release.key -p release.pub`"},
		{[]string{"-version=1.0.0", "-key=" + at("none.key")}, "no such file or directory: make one with `minisign -G"},
		{[]string{"-version=1.0.0", "-key=" + at("release.pub")}, "release.pub: "},
		{[]string{"-version=1.0.0", "-key=" + at("release.key"), "-unsigned"}, "--unsigned and a key exclude each other"},
		{[]string{"-version=1.0.0", "now"}, `"now" is no flag`},
	} {
		if err := run(t.Context(), test.args); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.args, err, test.want)
		}
	}
	for _, epoch := range []string{"yesterday", "12"} {
		if _, err := releaseTime(t.Context(), dir, epoch); err == nil || !strings.Contains(err.Error(), "SOURCE_DATE_EPOCH") {
			t.Errorf("%s=%s: %v", epochEnv, epoch, err)
		}
	}
}

// The list of parts of the server names what is linked into it and what its web UI has.
func TestListOfPartsNamesModulesAndPackages(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(folder(t), "muster-1.0.0-linux-"+runtime.GOARCH+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		BOMFormat  string
		Components []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, c := range list.Components {
		if c.Version == "" || !strings.HasPrefix(c.Purl, "pkg:") {
			t.Errorf("%s has version %q and URL %q", c.Name, c.Version, c.Purl)
		}
		have[c.Name] = c.Purl
	}
	for _, name := range []string{"stdlib", "github.com/spf13/cobra", "modernc.org/sqlite", "react", "@mantine/core"} {
		if have[name] == "" {
			t.Errorf("%s is not in the list", name)
		}
	}
	if have["vitest"] != "" {
		t.Error("the list has vitest, which only tests use")
	}
	if want := "pkg:npm/%40mantine/core@"; !strings.HasPrefix(have["@mantine/core"], want) {
		t.Errorf("the URL of a package with a scope is %s, want %s…", have["@mantine/core"], want)
	}
}

// maxExposure is the highest score of `systemd-analyze security`, in tenths, that units may have.
const maxExposure = 30

func TestUnitsAreHardened(t *testing.T) {
	require.Program(t, "systemd-analyze")
	for _, name := range []string{"muster.service", "muster-switch@.service"} {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, extract(t, "muster-1.0.0-linux-"+runtime.GOARCH+".tar.gz", name), 0o644); err != nil {
			t.Fatal(err)
		}
		out := output(t, "systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold="+strconv.Itoa(maxExposure), file)
		if score := regexp.MustCompile(`Overall exposure level for \S+: (\S+)`).FindStringSubmatch(out); score == nil {
			t.Errorf("%s: no score in %s", name, out)
		} else {
			t.Logf("the score of %s is %s", name, score[1])
		}
	}
}

// extract returns a file of the server's archive.
func extract(t *testing.T, archive, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join(folder(t), archive))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("%s has no %s", archive, name)
		}
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(h.Name) == name {
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
	}
}

// tolerated are complaints of lintian that do not apply, with the reason.
var tolerated = []string{
	"statically-linked-binary",             // as Go links
	"unknown-field",                        // License, which the library adds
	"maintainer-script-calls-systemctl",    // one script serves dpkg and rpm
	"non-standard-file-perm",               // the configuration may hold secrets
	"absolute-symlink-in-top-level-folder", // the layout, which other tools read
}

func TestLintianFindsNothing(t *testing.T) {
	require.Program(t, "lintian")
	debs, err := filepath.Glob(filepath.Join(folder(t), "*.deb"))
	if err != nil || len(debs) != 2 {
		t.Fatalf("%q, %v", debs, err)
	}
	args := append([]string{"lintian", "--allow-root", "--fail-on=error,warning", "--suppress-tags=" + strings.Join(tolerated, ",")}, debs...)
	output(t, args...)
}

// dpkg and rpm read their packages, refuse one of another architecture by its name for the
// processor, and have the configuration as a file that they do not replace.
func TestPackagesAreReadByTheirTools(t *testing.T) {
	require.Program(t, "dpkg-deb")
	require.Program(t, "rpm")
	dir := folder(t)
	if got := strings.TrimSpace(output(t, "dpkg-deb", "-f", filepath.Join(dir, "muster_1.0.0_"+runtime.GOARCH+".deb"), "Architecture")); got != runtime.GOARCH {
		t.Errorf("the architecture for dpkg is %s", got)
	}
	packages, err := filepath.Glob(filepath.Join(dir, "muster-1.0.0-1.*.rpm"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("%q, %v", packages, err)
	}
	if got := output(t, "rpm", "-qp", "--qf=%{ARCH} %{BUILDHOST} %{BUILDTIME}", packages[0]); !regexp.MustCompile(`^(x86_64|aarch64) muster 1772366400$`).MatchString(got) {
		t.Errorf("rpm reads %s", got)
	}
	if got := strings.TrimSpace(output(t, "rpm", "-qp", "--configfiles", packages[0])); got != "/etc/muster/server.yml" {
		t.Errorf("the configuration files for rpm are %s", got)
	}
	output(t, "rpm", "-K", "--nosignature", packages[0])
}

func TestConfigurationOfANewInstallationExplainsAllAndSetsNothing(t *testing.T) {
	text := string(extract(t, "muster-1.0.0-linux-"+runtime.GOARCH+".tar.gz", "server.yml"))
	if !strings.Contains(text, "agents:") || !strings.Contains(text, "listen:") {
		t.Errorf("the configuration does not explain agents.listen:\n%s", text)
	}
	for line := range strings.Lines(text) {
		if s := strings.TrimSpace(line); s != "" && !strings.HasPrefix(s, "#") {
			t.Errorf("the configuration sets %s", s)
		}
	}
}

func TestSumsAreOfAllFiles(t *testing.T) {
	dir := folder(t)
	text, err := os.ReadFile(filepath.Join(dir, sumsFile))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(text, []byte("\n")); got != len(entries)-1 {
		t.Errorf("%d sums for %d files", got, len(entries)-1)
	}
	for _, e := range entries {
		if e.Name() == sumsFile {
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(b); !strings.Contains(string(text), hex.EncodeToString(sum[:])+"  "+e.Name()+"\n") {
			t.Errorf("the sum of %s is wrong or missing", e.Name())
		}
	}
}
