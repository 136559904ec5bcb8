package gitops

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"

	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// buildTimeout bounds the first build of a program: OpenTofu took five minutes on two cores that
// built something else as well. The tests of a package have 30 minutes.
const buildTimeout = 20 * time.Minute

// program is a program of others. Its module is in the folder of its name here.
type program struct{ name, pkg, file string }

var (
	openTofu = program{"tofu", "github.com/opentofu/opentofu/cmd/tofu", "tofu"}
	restAPI  = program{"restapi", "github.com/Mastercard/terraform-provider-restapi", "terraform-provider-restapi"}
)

// get returns the path of the program, which it builds if the user's cache folder does not have
// it. The cached program belongs to exact versions of all modules that it is built from.
func (p program) get(t *testing.T) string {
	t.Helper()
	path, err := p.build(t.Context())
	require.Made(t, err, "run it with a network: the program is built from the Go module proxy, once")
	return path
}

func (p program) build(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("a folder for %s: %w", p.name, err)
	}
	var versions []byte
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(p.name, name))
		if err != nil {
			return "", err
		}
		versions = append(versions, text...)
	}
	sum := sha256.Sum256(versions)
	dir := filepath.Join(cache, "muster", "gitops", p.name+"-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, p.file)
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	lock := flock.New(filepath.Join(dir, "lock"))
	if _, err := lock.TryLockContext(ctx, time.Second); err != nil {
		return "", fmt.Errorf("wait for another process that builds %s: %w", path, err)
	}
	defer lock.Unlock() //nolint:errcheck // the lock ends with the process
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	var out bytes.Buffer
	unfinished := path + ".new"
	if err := toolchain.RunGroup(ctx, &out, p.name, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", unfinished, p.pkg); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out.String())
	}
	return path, os.Rename(unfinished, path)
}
