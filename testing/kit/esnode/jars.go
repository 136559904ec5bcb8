package esnode

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
)

// Version is the version of Elasticsearch. Not every patch version has its transport on
// Maven Central.
const Version = "8.19.21"

const (
	// fetchTimeout bounds the download of 41 MB and of Maven's own parts on a slow line.
	fetchTimeout = 8 * time.Minute
	// fetchAttempts bounds the attempts: a broken download usually succeeds the second
	// time.
	fetchAttempts = 3
	// fetchPause is the pause between attempts.
	fetchPause = 3 * time.Second
)

var (
	//go:embed Launcher.java
	launcherSource []byte
	//go:embed pom.xml
	pom []byte
	// wanted lists the files of a distribution in the format of sha256sum. Published files
	// on Maven Central never change.
	//
	//go:embed jars.sha256
	wanted string
)

// Fetch returns the folder of Elasticsearch's jars in the user's cache folder. If a jar is
// missing or damaged, it fetches them with Maven first.
func Fetch(ctx context.Context) (string, error) {
	dir, err := cacheDir()
	if err != nil {
		return "", err
	}
	return fetchInto(ctx, dir, wanted, maven)
}

// IsFetched reports whether Fetch has nothing to do.
func IsFetched() bool {
	dir, err := cacheDir()
	if err != nil {
		return false
	}
	files, err := parseList(wanted)
	return err == nil && verify(filepath.Join(dir, Version), files) == nil
}

func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("a folder for Elasticsearch's jars: %w", err)
	}
	return filepath.Join(cache, "muster", "elasticsearch"), nil
}

// fetchInto is Fetch with a folder, a list of files, and a function that puts files of
// those names into a folder.
func fetchInto(ctx context.Context, dir, list string, get func(ctx context.Context, to string, attempt int) error) (string, error) {
	files, err := parseList(list)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	dist := filepath.Join(dir, Version)
	if verify(dist, files) == nil {
		return dist, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	lock := flock.New(dist + ".lock")
	if _, err := lock.TryLockContext(ctx, time.Second); err != nil {
		return "", fmt.Errorf("wait for another process that fetches %s: %w", dist, err)
	}
	defer lock.Unlock() //nolint:errcheck // the lock ends with the process
	if verify(dist, files) == nil {
		return dist, nil
	}
	for attempt := 1; ; attempt++ {
		err := fetch(ctx, dir, dist, files, attempt, get)
		if err == nil {
			return dist, nil
		}
		if attempt == fetchAttempts || ctx.Err() != nil || errors.Is(err, exec.ErrNotFound) {
			return "", fmt.Errorf("fetch Elasticsearch %s (attempt %d of %d): %w", Version, attempt, fetchAttempts, err)
		}
		select {
		case <-time.After(fetchPause):
		case <-ctx.Done():
		}
	}
}

// fetch creates a distribution in a temporary folder, and renames it when complete.
func fetch(ctx context.Context, dir, dist string, files []file, attempt int, get func(context.Context, string, int) error) (err error) {
	// The lock is held, so these were left by killed processes.
	left, _ := filepath.Glob(filepath.Join(dir, "fetch-*"))
	for _, l := range left {
		if err := os.RemoveAll(l); err != nil {
			return err
		}
	}
	tmp, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	got, whole := filepath.Join(tmp, "got"), filepath.Join(tmp, "whole")
	if err := get(ctx, got, attempt); err != nil {
		return err
	}
	byName := map[string]string{}
	if err := filepath.WalkDir(got, func(at string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			byName[e.Name()] = at
		}
		return err
	}); err != nil {
		return err
	}
	for _, f := range files {
		from, ok := byName[path.Base(f.path)]
		if !ok {
			return fmt.Errorf("%s is not among what was fetched", path.Base(f.path))
		}
		to := filepath.Join(whole, filepath.FromSlash(f.path))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.Rename(from, to)); err != nil {
			return err
		}
	}
	if err := verify(whole, files); err != nil {
		return err
	}
	if err := os.RemoveAll(dist); err != nil {
		return err
	}
	return os.Rename(whole, dist)
}

// compileTimeout bounds a compilation, which takes two seconds on an idle machine.
const compileTimeout = 2 * time.Minute

// compileLauncher returns a folder with the compiled Launcher for the jars in dist. It
// compiles only once, since compiling takes half as long as a start.
func compileLauncher(ctx context.Context, java, dist string) (string, error) {
	sum := sha256.Sum256(launcherSource)
	dir := filepath.Join(filepath.Dir(dist), "launcher-"+Version+"-"+hex.EncodeToString(sum[:4]))
	if _, err := os.Stat(filepath.Join(dir, "Launcher.class")); err == nil {
		return dir, nil
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dist), "compile-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	source, classes := filepath.Join(tmp, "Launcher.java"), filepath.Join(tmp, "classes")
	if err := os.WriteFile(source, launcherSource, 0o644); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, compileTimeout)
	defer cancel()
	// A runtime without the program javac has the compiler as a module.
	c := exec.CommandContext(ctx, java, "--module", "jdk.compiler/com.sun.tools.javac.Main", "--release", strconv.Itoa(minJava),
		"-d", classes, "--module-path", filepath.Join(dist, "lib"), "--add-modules=ALL-MODULE-PATH", source)
	c.WaitDelay = time.Second
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("compile the launcher (this needs the module jdk.compiler, which some Java runtimes lack): %w: %s", err, lastLines(out, 5))
	}
	if err := os.Rename(classes, dir); err != nil {
		// Another process may have compiled it meanwhile.
		if _, there := os.Stat(filepath.Join(dir, "Launcher.class")); there != nil {
			return "", err
		}
	}
	return dir, nil
}

// maven fetches the jars and the transport's descriptor into a folder.
func maven(ctx context.Context, to string, attempt int) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("it comes from Maven Central: %w", err)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	project := filepath.Join(filepath.Dir(to), "pom.xml")
	if err := os.WriteFile(project, pom, 0o644); err != nil {
		return err
	}
	args := []string{"-q", "-B", "-f", project, "-Delasticsearch=" + Version, "-Dto=" + to}
	if attempt > 1 {
		// Maven does not fetch a damaged file in the user's own repository again.
		args = append(args, "-Dmaven.repo.local="+filepath.Join(filepath.Dir(to), "repository"))
	}
	c := exec.CommandContext(ctx, mvn, append(args, "dependency:copy-dependencies@jars", "dependency:unpack-dependencies@descriptor")...)
	c.WaitDelay = time.Second
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("mvn: %w: %s", err, lastLines(out, 5))
	}
	return nil
}

// file is one file of a distribution.
type file struct{ path, digest string }

// parseList parses the format of sha256sum. Lines that begin with # are comments.
func parseList(text string) ([]file, error) {
	var out []file
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		digest, name, ok := strings.Cut(line, "  ")
		if !ok || len(digest) != hex.EncodedLen(sha256.Size) || !fs.ValidPath(name) {
			return nil, fmt.Errorf("list of digests: %q is not a digest and a path", line)
		}
		out = append(out, file{name, digest})
	}
	if len(out) == 0 {
		return nil, errors.New("list of digests: it is empty")
	}
	return out, nil
}

// verify reports which files of a distribution are missing or damaged.
func verify(dist string, files []file) error {
	for _, f := range files {
		got, err := digest(filepath.Join(dist, filepath.FromSlash(f.path)))
		if err != nil {
			return err
		}
		if got != f.digest {
			return fmt.Errorf("%s has the digest %s, want %s", f.path, got, f.digest)
		}
	}
	return nil
}

func digest(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func lastLines(text []byte, n int) string {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}
