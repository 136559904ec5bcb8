package suite

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestPackagesThatShareMemoryAreRaced(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  bool
	}{
		"a pure package":          {map[string]string{"a.go": "package a\n\nfunc F() {}\n", "a_test.go": "package a\n\nimport \"testing\"\n\nfunc TestF(t *testing.T) { F() }\n"}, false},
		"a lock":                  {map[string]string{"a.go": "package a\n\nimport \"sync\"\n\nvar mu sync.Mutex\n"}, true},
		"a goroutine":             {map[string]string{"a.go": "package a\n\nfunc F() { go F() }\n"}, true},
		"a test with a goroutine": {map[string]string{"a.go": "package a\n", "a_test.go": "package a\n\nfunc f() { go func() {}() }\n"}, true},
		"a group":                 {map[string]string{"a.go": "package a\n\nimport \"golang.org/x/sync/errgroup\"\n\nvar g errgroup.Group\n"}, true},
		"the word in a comment":   {map[string]string{"a.go": "package a\n\n// go func() { sync }\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range test.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got, _, err := look(dir); err != nil || got != test.want {
				t.Errorf("shares memory: %v, %v; want %v", got, err, test.want)
			}
		})
	}
}

func TestLongTestsAreThoseThatRequireTime(t *testing.T) {
	dir := t.TempDir()
	const file = `package a

func TestShort(t *testing.T) { require.Root(t) }

func TestLong(t *testing.T) {
	t.Parallel()
	require.Time(t, "tries all cases")
}

func helper(t *testing.T) { require.Time(t, "starts a node") }
`
	if err := os.WriteFile(filepath.Join(dir, "a_test.go"), []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, long, err := look(dir); err != nil || !slices.Equal(long, []string{"TestLong"}) {
		t.Errorf("the long tests are %q: %v", long, err)
	}
}
