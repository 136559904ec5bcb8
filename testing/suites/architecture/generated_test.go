package architecture

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

const stale = "%s differs from what its source generates (first difference at byte %d): run `go tool mage fmt` and commit"

// The generator writes into its own folder, so it runs in a copy of the files it needs.
func TestGeneratedTypesOfTheUIAreCurrent(t *testing.T) {
	require.Program(t, "npm")
	node := require.Program(t, "node")
	tr := openTree(t)
	require.Path(t, tr.path("ui/node_modules/.package-lock.json"), "run `go tool mage ui`")
	const result = "ui/app/api/__generated__/admin.ts"
	world := t.TempDir()
	for _, name := range []string{"ui/generate.mjs", "ui/.npmrc", "server/api/adminapi/openapi.yaml", result} {
		to := filepath.Join(world, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		content := tr.read(name)
		if name == result {
			content = nil // so that the file compared below is a new one
		}
		if err := os.WriteFile(to, content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run(t, filepath.Join(world, "ui"), node, "generate.mjs")
	compare(t, tr, result, filepath.Join(world, filepath.FromSlash(result)))
}

func run(t *testing.T, dir string, args ...string) {
	t.Helper()
	var out bytes.Buffer
	if err := toolchain.Run(t.Context(), &out, dir, nil, args...); err != nil {
		t.Fatalf("%v:\n%s", err, out.Bytes())
	}
}

func compare(t *testing.T, tr tree, name, fresh string) {
	t.Helper()
	want, err := os.ReadFile(fresh)
	if err != nil {
		t.Fatal(err)
	}
	if len(want) == 0 {
		t.Fatalf("the generator of %s wrote nothing", name)
	}
	if got := tr.read(name); !bytes.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Errorf(stale, name, at)
	}
}
