package suite

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
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

// A long test is left out by its name, in all packages that are raced.
func TestNoOtherTestHasTheNameOfALongOne(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	p, err := listPackages(t.Context(), root, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if len(p.longTests) < 20 {
		t.Errorf("there are %d long tests", len(p.longTests))
	}
	count := map[string]int{}
	for _, pkg := range p.raced {
		files, err := filepath.Glob(filepath.Join(root, pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range p.longTests {
				count[name] += strings.Count(string(text), "func "+name+"(")
			}
		}
	}
	for name, n := range count {
		if n != 1 {
			t.Errorf("%d tests are called %s: rename those that are not long", n, name)
		}
	}
}
