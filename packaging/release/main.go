// Command release makes what is published of a version of Muster: packages for Debian, RPM and
// other Linux, the agent's archives, pages of the manual, lists of parts, checksums and their
// signature. `go tool mage release` runs it. DESIGN.md says what a release contains.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

const (
	versionEnv  = "MUSTER_VERSION"
	keyEnv      = "MUSTER_RELEASE_KEY"
	passwordEnv = "MUSTER_KEY_PASSWORD" //nolint:gosec // a name, not a password
	epochEnv    = "SOURCE_DATE_EPOCH"
)

// Options describe a release.
type Options struct {
	// Root is the top folder of the repository.
	Root string
	// Out gets a folder with the release, named by the version.
	Out     string
	Version string
	// Architectures are those of Linux, as GOARCH values.
	Architectures []string
	// OtherSystems adds the agent's archives for macOS and Windows.
	OtherSystems bool
	// Time is the time of everything in the release.
	Time time.Time
	// Key is the publisher's private key, nil for a release without a signature.
	Key *signingKey
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var (
		o                 Options
		keyFile, archList string
		unsigned          bool
	)
	f := flag.NewFlagSet("release", flag.ContinueOnError)
	f.StringVar(&o.Version, "version", os.Getenv(versionEnv), "version to release, such as 1.1.0 (default $"+versionEnv+")")
	f.StringVar(&o.Root, "root", filepath.Join("..", ".."), "top folder of the repository")
	f.StringVar(&o.Out, "out", "", "folder for releases (default build/release in the repository)")
	f.StringVar(&keyFile, "key", os.Getenv(keyEnv), "private key that signs the checksums (default $"+keyEnv+"); its password is in $"+passwordEnv)
	f.BoolVar(&unsigned, "unsigned", false, "do not sign the checksums; for trials only")
	f.StringVar(&archList, "arch", "amd64,arm64", "architectures of Linux, as GOARCH values")
	f.BoolVar(&o.OtherSystems, "other-systems", true, "also make the agent's archives for macOS and Windows")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q is no flag: see --help", f.Arg(0))
	}
	if o.Version == "" {
		return fmt.Errorf("--version is missing: %s=1.1.0 go tool mage release", versionEnv)
	}
	if _, err := manifest.ParseVersion(o.Version); err != nil {
		return fmt.Errorf("--version: %w", err)
	}
	o.Architectures = strings.Split(archList, ",")
	for _, arch := range o.Architectures {
		if arch != "amd64" && arch != "arm64" {
			return fmt.Errorf("--arch: %q is not an architecture that is released: want amd64 or arm64", arch)
		}
	}
	var err error
	if o.Root, err = filepath.Abs(o.Root); err != nil {
		return err
	}
	if o.Out == "" {
		o.Out = filepath.Join(o.Root, "build", "release")
	}
	if o.Out, err = filepath.Abs(o.Out); err != nil {
		return err
	}
	// Before anything is built, since the build takes minutes.
	if o.Key, err = readKey(keyFile, unsigned); err != nil {
		return err
	}
	if o.Time, err = releaseTime(ctx, o.Root, os.Getenv(epochEnv)); err != nil {
		return err
	}
	dir, err := Build(ctx, o)
	if err != nil {
		return err
	}
	fmt.Println(dir)
	return nil
}

// releaseTime returns the time of the commit, unless the environment gives another.
func releaseTime(ctx context.Context, root, epoch string) (time.Time, error) {
	if epoch == "" {
		out, err := exec.CommandContext(ctx, "git", "-C", root, "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("the time of the commit, or set %s to seconds since 1970: %w", epochEnv, err)
		}
		epoch = strings.TrimSpace(string(out))
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	// A zip file has no times before 1980.
	if err == nil && seconds < time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC).Unix() {
		err = errors.New("it is before 1980")
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is %q, want seconds since 1970: %w", epochEnv, epoch, err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}
