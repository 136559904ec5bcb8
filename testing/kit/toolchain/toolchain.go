// Package toolchain prepares a machine to build and test Muster: it installs missing
// packages, and builds the web UI and the programs. The magefile's targets and the tests
// that run real programs call it.
package toolchain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/testing/kit/esnode"
)

// Root returns the repository's top folder, which it searches from the current one upwards.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if b, err := os.ReadFile(filepath.Join(d, "go.mod")); err == nil && bytes.Contains(b, []byte("module github.com/muster-fleet/muster\n")) {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s is not inside the repository", dir)
		}
	}
}

// debianPackages are the packages that tests need besides Go, Node and git, each with a
// program that shows that it is installed.
var debianPackages = []struct{ program, name string }{
	{"chromium", "chromium"},                   // browser tests
	{"fc-list", "fontconfig"},                  // fonts for them
	{"minisign", "minisign"},                   // verifies the signature of a release
	{"unzip", "unzip"},                         // the other reader of our zip files
	{"debootstrap", "debootstrap"},             // machines with a real systemd
	{"systemd-nspawn", "systemd-container"},    // runs them
	{"dockerd", "docker.io"},                   // tests start engines of their own
	{"rpm", "rpm"},                             // installs our packages for other systems
	{"lintian", "lintian"},                     // checks our packages for Debian
	{"promtool", monitor},                      // tests alerts, and comes with a Prometheus that scrapes
	{"fonts-dejavu-core", "fonts-dejavu-core"}, // checked by its folder, see have
	{"mvn", "maven"},                           // fetches Elasticsearch
	{"java", javaPackages[0]},                  // runs it, see javaPackage
}

// monitor is a package whose service would listen on all addresses without a password.
// Tests run a Prometheus of their own, so Setup masks the service before it installs it.
const monitor = "prometheus"

// javaPackages run Elasticsearch; a release of Debian has one or two of them.
var javaPackages = []string{"openjdk-17-jre-headless", "openjdk-21-jre-headless", "openjdk-25-jre-headless"}

// javaPackage returns the first of javaPackages that this release of Debian has, or the
// first if that is not known.
func javaPackage() string {
	for _, name := range javaPackages {
		if exec.Command("apt-cache", "show", name).Run() == nil {
			return name
		}
	}
	return javaPackages[0]
}

func have(program string) bool {
	var err error
	switch program {
	case "fonts-dejavu-core":
		_, err = os.Stat("/usr/share/fonts/truetype/dejavu")
	case "java":
		_, err = esnode.Java(context.Background()) // too old is as bad as none
	default:
		_, err = exec.LookPath(program)
	}
	return err == nil
}

// Missing lists the Debian packages that are not installed.
func Missing() []string {
	var out []string
	for _, p := range debianPackages {
		if have(p.program) {
			continue
		}
		if p.program == "java" {
			p.name = javaPackage()
		}
		out = append(out, p.name)
	}
	return out
}

// Setup installs missing packages as root on Debian. Elsewhere it prints what to install,
// which is no error, since the tests that need it are skipped with the reason. It also
// fetches the Elasticsearch that tests run.
func Setup(ctx context.Context, out io.Writer) error {
	if err := installMissing(ctx, out); err != nil {
		return err
	}
	return fetchElasticsearch(ctx, out)
}

func fetchElasticsearch(ctx context.Context, out io.Writer) error {
	if esnode.IsFetched() || !have("mvn") {
		return nil
	}
	fmt.Fprintf(out, "Fetching Elasticsearch %s from Maven Central …\n", esnode.Version)
	if _, err := esnode.Fetch(ctx); err != nil {
		// Without a network everything else can still run.
		fmt.Fprintf(out, "%v\nSuites that need Elasticsearch will be skipped.\n", err)
	}
	return ctx.Err()
}

func installMissing(ctx context.Context, out io.Writer) error {
	missing := Missing()
	if len(missing) == 0 {
		return nil
	}
	install := func() []string {
		return append([]string{"apt-get", "install", "-y", "--no-install-recommends"}, missing...)
	}
	mask := ""
	if slices.Contains(missing, monitor) {
		mask = "sudo systemctl mask " + monitor + ".service && "
	}
	_, err := exec.LookPath("apt-get")
	if runtime.GOOS != "linux" || err != nil || os.Geteuid() != 0 {
		fmt.Fprintf(out, "Not installed: %s. Suites that need them will be skipped. On Debian:\n  sudo apt-get update && %ssudo %s\n",
			strings.Join(missing, ", "), mask, strings.Join(install(), " "))
		return nil
	}
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	if err := quietly(ctx, out, "", env, "apt-get", "update", "-q"); err != nil {
		return err
	}
	if _, err := exec.LookPath("systemctl"); err == nil && mask != "" {
		if err := quietly(ctx, out, "", nil, "systemctl", "mask", monitor+".service"); err != nil {
			return err
		}
	}
	missing = Missing() // only now javaPackage knows the packages of the release
	fmt.Fprintf(out, "Installing %s …\n", strings.Join(missing, ", "))
	return quietly(ctx, out, "", env, install()...)
}

// BuildUI builds the web UI into ui/dist, unless it is newer than its sources.
func BuildUI(ctx context.Context, root string, out io.Writer) error {
	ui := filepath.Join(root, "ui")
	fresh, err := uiFresh(ui)
	if err != nil || fresh {
		return err
	}
	if err := InstallUI(ctx, root, out); err != nil {
		return err
	}
	fmt.Fprintln(out, "Building the web UI …")
	return quietly(ctx, out, ui, nil, "npm", "run", "build")
}

// InstallUI installs the dependencies of the web UI according to its lock file.
func InstallUI(ctx context.Context, root string, out io.Writer) error {
	return InstallNPM(ctx, filepath.Join(root, "ui"), out)
}

// InstallNPM installs what a folder's lock file of npm lists.
func InstallNPM(ctx context.Context, folder string, out io.Writer) error {
	if _, err := exec.LookPath("npm"); err != nil {
		return errors.New("npm is not installed: install Node 20 or newer")
	}
	lock, err := os.Stat(filepath.Join(folder, "package-lock.json"))
	if err != nil {
		return err
	}
	// npm writes this file at the end of an installation.
	if done, err := os.Stat(filepath.Join(folder, "node_modules", ".package-lock.json")); err == nil && done.ModTime().After(lock.ModTime()) {
		return nil
	}
	fmt.Fprintf(out, "Fetching what %s is built with …\n", filepath.Base(folder))
	return quietly(ctx, out, folder, nil, "npm", "ci", "--no-audit", "--no-fund")
}

func uiFresh(ui string) (bool, error) {
	built, err := os.Stat(filepath.Join(ui, "dist", "index.html"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	fresh := true
	for _, source := range []string{"app", "public", "index.html", "package-lock.json", "vite.config.ts"} {
		err := filepath.WalkDir(filepath.Join(ui, source), func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				return err
			}
			fi, err := e.Info()
			fresh = fresh && err == nil && (e.IsDir() || fi.ModTime().Before(built.ModTime()))
			return err
		})
		if err != nil {
			return false, err
		}
	}
	return fresh, nil
}

// Programs are the paths of the programs that BuildPrograms builds.
type Programs struct {
	Muster, Agent, Watcher string
	// These replace the agent in broken packages.
	Crasher, CrashLooper, Unhealthy string
	// OldWatcher is a watcher that understands only the first upgrade marker.
	OldWatcher string
	// Heartbeat is the agent, which records when it runs.
	Heartbeat string
	// Page is a program that agents run as a component: a web server with one page.
	Page string
}

// Tags are the build tags of every program. nomsgpack removes an unused codec from gin,
// which is half of the program.
const Tags = "nomsgpack"

// ReleaseTag is the build tag of tests that belong to the test of a release, because they start
// machines and engines.
const ReleaseTag = "release"

// NightlyRun is the environment variable that `go tool mage nightly` sets to "true".
const NightlyRun = "MUSTER_TEST_NIGHTLY"

// Nightly reports whether tables and simulations, of which the daily tests take a part, run whole.
func Nightly() bool { return os.Getenv(NightlyRun) == "true" }

// BuiltPrograms is the environment variable with the folder of programs that are built already: the
// suite builds them once for all packages that start them.
const BuiltPrograms = "MUSTER_TEST_PROGRAMS"

func programsIn(dir string) Programs {
	return Programs{
		Muster: filepath.Join(dir, "muster"), Agent: filepath.Join(dir, "muster-agent"), Watcher: filepath.Join(dir, "muster-watcher"),
		Crasher: filepath.Join(dir, "broken", "crasher"), CrashLooper: filepath.Join(dir, "broken", "crashlooper"), Unhealthy: filepath.Join(dir, "broken", "unhealthy"),
		OldWatcher: filepath.Join(dir, "broken", "oldwatcher"), Heartbeat: filepath.Join(dir, "heartbeat"), Page: filepath.Join(dir, "page"),
	}
}

// ProgramsForTests returns the programs of [BuiltPrograms], or builds them into dir.
func ProgramsForTests(ctx context.Context, root, dir string) (Programs, error) {
	if built := os.Getenv(BuiltPrograms); built != "" {
		return programsIn(built), nil
	}
	return BuildPrograms(ctx, root, dir, "", io.Discard)
}

// BuildPrograms builds the three programs, and the broken ones for tests, into dir. version
// is the version of muster; an agent has the version of its package.
func BuildPrograms(ctx context.Context, root, dir, version string, out io.Writer) (Programs, error) {
	p := programsIn(dir)
	fmt.Fprintln(out, "Building the programs …")
	for pkg, to := range map[string]string{
		"./server": p.Muster, "./agent": p.Agent, "./watcher": p.Watcher,
		"./testing/kit/fakepkg/crasher": p.Crasher, "./testing/kit/fakepkg/crashlooper": p.CrashLooper, "./testing/kit/fakepkg/unhealthy": p.Unhealthy,
		"./testing/kit/fakepkg/oldwatcher": p.OldWatcher, "./testing/kit/fakepkg/heartbeat": p.Heartbeat, "./testing/kit/fakepkg/page": p.Page,
	} {
		if err := build(ctx, root, pkg, to, version, out); err != nil {
			return p, err
		}
	}
	return p, nil
}

// BuildServer builds only muster, for tests that need no other program. An empty version is that of
// the source.
func BuildServer(ctx context.Context, root, dir, version string, out io.Writer) (Programs, error) {
	p := Programs{Muster: filepath.Join(dir, "muster")}
	return p, build(ctx, root, "./server", p.Muster, version, out)
}

// BuildChangedServer is BuildServer of a source in which files are replaced or added, as the
// file overlay says; see `go help build`. So a test has a later version of the program.
func BuildChangedServer(ctx context.Context, root, dir, version, overlay string, out io.Writer) (Programs, error) {
	p := Programs{Muster: filepath.Join(dir, "muster")}
	return p, build(ctx, root, "./server", p.Muster, version, out, "-overlay", overlay)
}

func build(ctx context.Context, root, pkg, to, version string, out io.Writer, flags ...string) error {
	ldflags := "-s -w"
	if version != "" {
		ldflags += " -X main.version=" + version
	}
	args := append([]string{"go", "build", "-trimpath", "-tags", Tags, "-ldflags", ldflags, "-o", to}, flags...)
	return quietly(ctx, out, root, []string{"CGO_ENABLED=0"}, append(args, pkg)...)
}

// stopGrace is how long an interrupted command may take to end.
const stopGrace = 5 * time.Second

// Run runs a command, and interrupts it when ctx ends. Its output goes to out.
func Run(ctx context.Context, out io.Writer, dir string, env []string, args ...string) error {
	return finish(command(ctx, out, dir, env, args))
}

// RunGroup is Run in a process group of its own: when ctx ends, all processes of the
// group are interrupted, and killed if they take longer than stopGrace. A `go test` or
// npm does not pass an interrupt on to what it has started.
func RunGroup(ctx context.Context, out io.Writer, dir string, env []string, args ...string) error {
	c := command(ctx, out, dir, env, args)
	c.SysProcAttr = ownGroup()
	c.Cancel = func() error { return interruptGroup(c.Process.Pid) }
	err := finish(c)
	if ctx.Err() != nil && c.Process != nil {
		killGroup(c.Process.Pid)
	}
	return err
}

func command(ctx context.Context, out io.Writer, dir string, env, args []string) *exec.Cmd {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Dir, c.Stdout, c.Stderr = dir, out, out
	c.Env = append(os.Environ(), env...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = stopGrace
	return c
}

func finish(c *exec.Cmd) error {
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(c.Args, " "), err)
	}
	return nil
}

// quietly is Run with output only if the command fails.
func quietly(ctx context.Context, out io.Writer, dir string, env []string, args ...string) error {
	var buf bytes.Buffer
	err := Run(ctx, &buf, dir, env, args...)
	if err != nil {
		_, _ = out.Write(buf.Bytes()) // err says more than a failed write
	}
	return err
}
