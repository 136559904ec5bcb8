package docs

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestBlocksOfAPage(t *testing.T) {
	got, err := parse("x.md", "```sh\na\nb\n```\n```yaml\nc: d\n```\n\n<!-- not run: a reason -->\n```console\ne\n```\n")
	want := []Block{{"x.md", 1, "a\nb\n", ""}, {"x.md", 10, "e\n", "a reason"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("read %+v, %v, want %+v", got, err, want)
	}
	for text, want := range map[string]string{
		"```console\na\n```\n":                        "x.md:1: a block of the language console is not run: write the reason",
		"<!-- not run: r -->\n\n```console\na\n```\n": "x.md:3: a block of the language console",
		"```bash\na\n```\n":                           `not "bash"`,
		"```sh\na\n":                                  "has no end",
	} {
		if _, err := parse("x.md", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is refused with %v, want %q", text, err, want)
		}
	}
}

// A page that no test runs would rot.
func TestEveryPageWithCommandsIsRun(t *testing.T) {
	folder := filepath.Join("..", "..", "..", "ui", "docs")
	err := fs.WalkDir(os.DirFS(folder), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == "node_modules" || d.Name() == ".vitepress") {
			return cmp.Or(err, fs.SkipDir)
		}
		if filepath.Ext(name) != ".md" {
			return nil
		}
		blocks, err := Read(folder, filepath.FromSlash(name))
		if err != nil {
			t.Error(err)
		}
		if len(blocks) > 0 && !slices.Contains(Pages, name) {
			t.Errorf("ui/docs/%s has commands, and is not in Pages: they would not be run", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
