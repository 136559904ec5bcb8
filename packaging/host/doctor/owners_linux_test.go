package doctor

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/require"
)

func TestOwners(t *testing.T) {
	require.Root(t)
	const service = 65534
	data := t.TempDir()
	inside := filepath.Join(data, "trust")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	is := func(level Level, found, mend string) {
		t.Helper()
		if got, want := Owners(data), (Finding{Level: level, Found: found, Mend: mend}); got != want {
			t.Errorf("found %+v, want %+v", got, want)
		}
	}
	is("", "", "") // root's
	for _, dir := range []string{data, inside} {
		if err := os.Chown(dir, service, service); err != nil {
			t.Fatal(err)
		}
	}
	is(OK, "all in "+data+" belongs to its owner", "")
	mend := "sudo chown -R --reference=" + data + " " + data
	for _, name := range []string{"muster.db", "trust/online.key"} {
		if err := os.WriteFile(filepath.Join(data, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is(Warning, "in "+data+" these do not belong to its owner, who may be unable to open them: muster.db, trust/online.key", mend)
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(data, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is(Warning, "in "+data+" these do not belong to its owner, who may be unable to open them: a, b, c, 2 more", mend)
}
